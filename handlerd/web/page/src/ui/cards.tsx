// What waits for the person: Handler's own approvals, and the agent's questions. Each is one card that can be reached
// with J and K and answered with A and R.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { change } from "../lib/api.ts";
import type { Approval, BrowserApproval, Place } from "../lib/types.ts";
import type { Question } from "../model/conversation.ts";
import { callTitle, wholeInput } from "../model/conversation.ts";
import { left } from "../model/words.ts";
import { answer, said } from "../state.ts";
import { Failure } from "./basics.tsx";
import { DiffView, subject } from "./tool.tsx";
import { Elicitation } from "./elicitation.tsx";

// A card that has just come takes no click: one that was meant for what stood there before would answer it.
const settleFor = 400;

// Card is the frame of all of them.
export function Card({ id, label, children }: { id: string; label: string; children: ComponentChildren }) {
  return <section class="card" data-card={id} tabIndex={-1} aria-label={label}>{children}</section>;
}

// useAnswer runs an answer once, and holds what went wrong.
function useAnswer() {
  const since = useRef(performance.now());
  const [busy, setBusy] = useState(false);
  const [err, setErr] = useState<unknown>(null);
  const run = async (what: () => Promise<unknown>) => {
    if (busy || performance.now() - since.current < settleFor) return;
    setBusy(true);
    setErr(null);
    try {
      await what();
    } catch (e) {
      setErr(e);
      setBusy(false);
    }
  };
  return { busy, err, run };
}

// ApprovalCard is one of Handler's own questions (contract H).
export function ApprovalCard({ approval: a }: { approval: Approval }) {
  const { busy, err, run } = useAnswer();
  const give = (allow: boolean, scope: string) => run(async () => {
    const note = await answer(a, allow, scope);
    said.value = (allow ? "Allowed: " : "Refused: ") + a.text + (note ? `. ${note}` : "");
  });
  const scopes = (a.scopes ?? []).filter((s) => s !== "once");
  return (
    <Card id={`a:${a.id}`} label={`Handler asks: ${a.text}`}>
      <header><span class="who">Handler asks · {a.agent}</span><Left until={a.expires} /></header>
      {a.browser ? <BrowserFacts a={a} b={a.browser} /> : <h3>{a.text}</h3>}
      {a.waiting > 1 ? <p class="dim">{a.waiting} requests wait for this answer</p> : null}
      {err ? <Failure err={err} title="The answer did not arrive" /> : null}
      <div class="answers">
        <button class="primary" data-allow disabled={busy} onClick={() => give(true, "once")}>Allow once <kbd>A</kbd></button>
        <button data-refuse disabled={busy} onClick={() => give(false, "once")}>Refuse <kbd>R</kbd></button>
        {scopes.map((s) => (
          <button key={s} class="quiet" disabled={busy} onClick={() => give(true, s)}>{s === "run" ? "Allow for this run" : s === "always" ? "Always allow" : s}</button>
        ))}
      </div>
      {scopes.length > 0 && a.detail ? <p class="dim small">{a.detail}</p> : null}
    </Card>
  );
}

// BrowserFacts lists what the guarded browser is about to do. What a page made up stands in quotes and apart from
// Handler's own words.
function BrowserFacts({ a, b }: { a: Approval; b: BrowserApproval }) {
  const place = (p: Place) => <><b class="site">{p.site}</b>{p.url && p.url !== p.site + "/" ? <small class="url">{p.url}</small> : null}</>;
  const row = (name: string, values: ComponentChildren[]) => values.length === 0 ? null : <><dt>{name}</dt><dd>{values.map((v, i) => <div key={i}>{v}</div>)}</dd></>;
  return (
    <>
      <h3 class="act">{b.visit ? "Open a site" : b.action}{b.elements?.[0] ? <> <q class="theirs">{b.elements[0].name || "without a name"}</q> <small>({b.elements[0].role})</small></> : null}</h3>
      <dl class="facts">
        {row("on", (b.pages ?? []).map(place))}
        {b.frame ? row("in the frame", [place(b.frame)]) : null}
        {row(b.visit ? "site" : "leads to", (b.targets ?? []).map(place))}
        {row("also", (b.elements ?? []).slice(1).map((e) => <><q class="theirs">{e.name || "without a name"}</q> ({e.role})</>))}
        {row("with", (b.values ?? []).map((v) => <q class="theirs">{v}</q>))}
        {b.title ? row("the page calls itself", [<q class="theirs">{b.title}</q>]) : null}
        {b.says ? row("the page says", [<q class="theirs">{b.says}</q>]) : null}
      </dl>
      {b.more ? <p class="dim">and {b.more} more, which are not shown</p> : null}
      {b.picture ? (
        <figure class="seen">
          <img src={`/api/v1/approvals/${encodeURIComponent(a.id)}/picture`} alt={`picture of ${b.elements?.[0]?.role || "the element"} on the page`} width={b.picture.width} height={b.picture.height} />
        </figure>
      ) : null}
    </>
  );
}

// Left counts the time down that is left for an answer.
export function Left({ until }: { until: string }) {
  const [t, setT] = useState(Date.now());
  useEffect(() => {
    const i = setInterval(() => setT(Date.now()), 1_000);
    return () => clearInterval(i);
  }, []);
  const text = left(until, t);
  return text ? <span class="left" title={new Date(until).toLocaleTimeString()}>expires in {text}</span> : null;
}

const kindOrder = ["allow_once", "allow_always", "reject_once", "reject_always"];

// QuestionCard is a question of the agent's. One of another client's is shown and answered there.
export function QuestionCard({ question: q, session, agent }: { question: Question; session: string; agent: string }) {
  const { busy, err, run } = useAnswer();
  const send = (body: object) => run(() => change("POST", `/v1/sessions/${encodeURIComponent(session)}/answer`, { id: q.id, by: "the page", ...body }));
  if (q.method !== "session/request_permission") {
    return <Card id={`q:${q.id}`} label={`${agent} asks`}><Elicitation q={q} agent={agent} busy={busy} send={send} />{err ? <Failure err={err} title="The answer did not arrive" /> : null}</Card>;
  }
  const options = [...q.options].sort((a, b) => kindOrder.indexOf(a.kind) - kindOrder.indexOf(b.kind));
  const first = (p: string) => options.find((o) => o.kind === p + "_once") ?? options.find((o) => o.kind.startsWith(p));
  const allow = first("allow");
  const refuse = first("reject");
  const whole = q.tool ? wholeInput(q.tool) : "";
  const about = q.tool && whole === "" ? subject(q.tool) : "";
  return (
    <Card id={`q:${q.id}`} label={`${agent} asks: ${q.tool ? callTitle(q.tool) : "may it"}`}>
      <header><span class="who">{agent} asks</span></header>
      <h3>{q.tool ? callTitle(q.tool) : "for a permission"}</h3>
      {about ? <pre class="about">{about}</pre> : null}
      {whole ? <Whole text={whole} /> : null}
      {q.tool?.contents.filter((c) => c.type === "diff").map((d, i) => <DiffView key={i} d={d} />)}
      {q.tool?.contents.filter((c) => c.type === "text" && !whole.includes(c.text)).map((c, i) => <Whole key={i} text={c.text} />)}
      {err ? <Failure err={err} title="The answer did not arrive" /> : null}
      {q.ours ? (
        <div class="answers">
          {options.map((o) => (
            <button
              key={o.optionId}
              class={o === allow ? "primary" : o.kind.endsWith("always") ? "quiet" : undefined}
              data-allow={o === allow ? "" : undefined}
              data-refuse={o === refuse ? "" : undefined}
              disabled={busy}
              onClick={() => send({ option: o.optionId })}
            >
              {o.name || o.optionId}{o === allow ? <kbd>A</kbd> : o === refuse ? <kbd>R</kbd> : null}
            </button>
          ))}
        </div>
      ) : <p class="dim">It is asked where the session was started, and answered there.</p>}
    </Card>
  );
}

const wholeBound = 20_000; // characters

// Whole is a text that is decided about: it scrolls, and says what of it is not shown.
function Whole({ text }: { text: string }) {
  const more = text.length - wholeBound;
  return (
    <>
      <pre class="about" tabIndex={0} aria-label="what it is about">{text.slice(0, wholeBound)}</pre>
      {more > 0 ? <p class="problem">{more.toLocaleString("en")} more characters are not shown: open the call above to read them</p> : null}
    </>
  );
}
