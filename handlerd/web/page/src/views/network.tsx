// Where agents went and where they were refused, live, with the answers that a person can give.
import { useEffect, useRef, useState } from "preact/hooks";
import { change, get, lines } from "../lib/api.ts";
import type { LiveRule, Verdict } from "../lib/types.ts";
import { agents } from "../agents.ts";
import { bytes } from "../model/words.ts";
import { runs, said } from "../state.ts";
import { Empty, Failure, Time } from "../ui/basics.tsx";

const keep = 500;

// useVerdicts follows the log of an agent, a run, or all.
function useVerdicts(query: string): { list: Verdict[]; err: unknown; again: () => void } {
  const [list, setList] = useState<Verdict[]>([]);
  const [err, setErr] = useState<unknown>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let buffer: Verdict[] = [];
    let frame = 0;
    setList([]);
    setErr(null);
    const flush = () => {
      frame = 0;
      const more = buffer;
      buffer = [];
      setList((l) => [...more.reverse(), ...l].slice(0, keep));
    };
    lines<Verdict>(`/v1/verdicts?last=200&follow=1${query}`, (v) => {
      buffer.push(v);
      if (frame === 0) frame = window.setTimeout(flush, 50);
    }, stop.signal).then(
      () => { if (!stop.signal.aborted) setTimeout(() => setTurn((n) => n + 1), 2_000); },
      (e) => { if (!stop.signal.aborted) setErr(e); },
    );
    return () => {
      stop.abort();
      clearTimeout(frame);
    };
  }, [query, turn]);
  return { list, err, again: () => setTurn((n) => n + 1) };
}

// allow makes a rule for what was refused.
async function allow(v: Verdict, scope: string): Promise<void> {
  await change("POST", "/v1/rules", { agent: v.agent, run: scope === "always" ? undefined : v.run, kind: "allow", rule: v.subject, scope });
  said.value = `${v.subject} is allowed`;
}

const isNo = (v: Verdict) => v.verdict === "refuse" || v.verdict === "refused" || v.verdict === "deny";

function VerdictRow({ v, withAgent }: { v: Verdict; withAgent: boolean }) {
  const [done, setDone] = useState("");
  const [err, setErr] = useState<unknown>(null);
  const live = v.run !== undefined && [...runs.value.keys()].some((id) => id.startsWith(v.run!) || v.run!.startsWith(id));
  const give = (scope: string) => allow(v, scope).then(() => setDone(scope === "once" ? "allowed once" : scope === "run" ? "allowed for the run" : "always allowed"), setErr);
  const no = isNo(v);
  const [sign, word] = no ? ["✗", "refused"] : /^allow/.test(v.verdict ?? "") ? ["✓", "allowed"] : ["·", v.verdict || v.kind];
  return (
    <li class={`verdict ${no ? "no" : "yes"}`}>
      <span class="sign" role="img" aria-label={word}>{sign}</span>
      <span class="subject"><b>{v.subject}</b><small>{withAgent ? `${v.agent} · ` : ""}{v.rule ? `${v.rule}: ` : ""}{v.reason}</small></span>
      <span class="dim when"><Time at={v.time} /></span>
      {no && v.kind === "network" ? (
        <span class="row">
          {done ? <span class="past">{done}</span> : <>
            {live ? <button class="small" onClick={() => void give("once")}>Allow once</button> : null}
            {live ? <button class="small" onClick={() => void give("run")}>For this run</button> : null}
            <button class="small quiet" onClick={() => void give("always")}>Always</button>
          </>}
        </span>
      ) : null}
      {err ? <Failure err={err} /> : null}
    </li>
  );
}

// Network is the view over all agents.
export function Network() {
  const [agent, setAgent] = useState("");
  const [only, setOnly] = useState(false);
  const { list, err, again } = useVerdicts(agent ? `&agent=${encodeURIComponent(agent)}` : "");
  const shown = only ? list.filter(isNo) : list;
  return (
    <main class="view" id="main" tabIndex={-1}>
      <header class="head"><h1>Network</h1>
        <label class="option"><span>Agent</span><select value={agent} onChange={(e) => setAgent(e.currentTarget.value)}><option value="">all</option>{agents.value.map((a) => <option key={a.name} value={a.name}>{a.name}</option>)}</select></label>
        <label class="option"><input type="checkbox" checked={only} onChange={(e) => setOnly(e.currentTarget.checked)} /><span>refused only</span></label>
      </header>
      {err ? <Failure err={err} retry={again} /> : null}
      <ul class="rows">{shown.map((v, i) => <VerdictRow key={`${v.time}${v.subject}${i}`} v={v} withAgent={agent === ""} />)}</ul>
      {shown.length === 0 && !err ? <Empty title={only ? "Nothing was refused" : "No connection yet"}><p>Each destination that an agent asks for stands here, with the rule that let it through or refused it.</p></Empty> : null}
    </main>
  );
}

// NetworkOf is one run's, for the side of its session.
export function NetworkOf({ agent, run, live }: { agent: string; run: string; live: boolean }) {
  const { list, err, again } = useVerdicts(`&run=${encodeURIComponent(run)}`);
  const r = runs.value.get(run);
  return (
    <>
      {r && (r.traffic ?? []).length > 0 ? (
        <details class="traffic"><summary>Where {bytes((r.traffic ?? []).reduce((n, t) => n + t.sent + t.received, 0))} went</summary>
          <table><thead><tr><th>host</th><th>out</th><th>in</th></tr></thead><tbody>{(r.traffic ?? []).map((t) => <tr key={t.host}><td>{t.host}</td><td>{bytes(t.sent)}</td><td>{bytes(t.received)}</td></tr>)}</tbody></table>
        </details>
      ) : null}
      {live ? <Rules run={run} agent={agent} /> : null}
      {err ? <Failure err={err} retry={again} /> : null}
      <ul class="rows">{list.map((v, i) => <VerdictRow key={`${v.time}${v.subject}${i}`} v={v} withAgent={false} />)}</ul>
      {list.length === 0 && !err ? <Empty title="No connection yet"><p>What {agent} reaches, and what is refused, stands here as it happens.</p></Empty> : null}
    </>
  );
}

// Rules lists the rules of a live run and adds one.
function Rules({ run, agent }: { run: string; agent: string }) {
  const [open, setOpen] = useState(false);
  const [rules, setRules] = useState<LiveRule[] | null>(null);
  const [err, setErr] = useState<unknown>(null);
  const field = useRef<HTMLInputElement>(null);
  const load = () => get<LiveRule[] | null>(`/v1/runs/${encodeURIComponent(run)}/rules`).then((l) => setRules(l ?? []), setErr);
  useEffect(() => {
    if (open) void load();
  }, [open, run]);
  const add = async (e: Event) => {
    e.preventDefault();
    const form = new FormData(e.currentTarget as HTMLFormElement);
    setErr(null);
    try {
      await change("POST", "/v1/rules", { agent, run: form.get("scope") === "always" ? undefined : run, kind: form.get("kind"), rule: String(form.get("rule")).trim(), scope: form.get("scope") });
      field.current!.value = "";
      await load();
    } catch (e2) {
      setErr(e2);
    }
  };
  return (
    <details class="traffic" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>Rules of this run</summary>
      {err ? <Failure err={err} /> : null}
      <ul class="plain">{(rules ?? []).map((r, i) => <li key={i}><b>{r.kind}</b> {r.rule} <small class="dim">{r.by}{r.scope ? `, ${r.scope}` : ""}</small></li>)}</ul>
      <form class="row" onSubmit={add}>
        <select name="kind" aria-label="kind of rule"><option value="allow">allow</option><option value="deny">deny</option><option value="private">private</option></select>
        <input ref={field} name="rule" required placeholder="host, *.suffix, host:port" aria-label="rule" autocomplete="off" spellcheck={false} />
        <select name="scope" aria-label="how long"><option value="run">this run</option><option value="once">once</option><option value="always">always</option></select>
        <button class="small">Add</button>
      </form>
    </details>
  );
}
