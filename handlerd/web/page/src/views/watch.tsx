// A live view: the screen of a sandbox, or the guarded browser, which a person may also take over.
import { useEffect, useRef, useState } from "preact/hooks";
import { change, Problem } from "../lib/api.ts";
import type { Screen } from "../lib/screen.ts";
import type { Artifact, Takeover, ViewRequest, ViewTicket } from "../lib/types.ts";
import { Watch, type Watched } from "../model/watch.ts";
import { left } from "../model/words.ts";
import { said } from "../state.ts";
import { ArtifactChip } from "../ui/artifact.tsx";
import { Dialog, Empty, Failure, Icon, Remedy } from "../ui/basics.tsx";

type What = ViewRequest["what"];
const hiddenFor = 30_000; // a page that nobody sees gives its picture back after this
const warnFor = 120; // seconds before a browser that nobody uses is given back
const runPath = (run: string, sub: string) => `/v1/runs/${encodeURIComponent(run)}/${sub}`;
const names: Record<What, string> = { display: "the screen of the sandbox", browser: "the guarded browser" };

interface Props {
  run: string;
  agent: string;
  what: What;
  news: number; // changes with the conversation
  hands: boolean; // the browser can be taken over
}

const lookAgain = 3_000; // between two looks whether the agent has opened its browser

// Live shows what of a run, and what can be done with it.
export function Live({ run, agent, what, news, hands }: Props) {
  const [taken, setTaken] = useState<Takeover | null>(null);
  const [asks, setAsks] = useState(false);
  const [note, setNote] = useState("");
  const frame = useRef<HTMLElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const { state, says, screen, again } = useWatch(box, run, agent, what, taken, (why) => {
    setTaken(null);
    setNote(why || `${agent} has its browser again.`);
  });
  const giveBack = async () => {
    screen.current?.blur();
    try {
      const done = await change<Takeover>("POST", runPath(run, "takeover"), { on: false });
      setNote(done.says);
      said.value = done.says;
    } catch (err) {
      setNote(`It is given back all the same, by ending this view: ${err instanceof Error ? err.message : String(err)}`);
    }
    setTaken(null);
  };
  const live = state.is === "live";
  const shut = useShut(what === "browser" && !taken, state, news, again);
  return (
    <>
      {shut ? <Empty title="No live picture"><p>{shut.message}</p>{/^handler /.test(shut.hint) ? <Remedy text={shut.hint} /> : null}{note ? <p class="notice" role="status">{note}</p> : null}</Empty> : null}
      <figure class={`watch${taken ? " taken" : ""}`} ref={frame} hidden={shut !== null}>
        <p class="watch-state" role="status"><StateWords state={state} taken={taken !== null} what={what} /></p>
        <div class={`glass${live ? "" : " waiting"}${taken ? "" : " only"}`} ref={box} onKeyDownCapture={(e) => {
          if (!taken || e.key !== "Escape" || !e.shiftKey) return;
          e.preventDefault();
          e.stopPropagation();
          screen.current?.blur();
          frame.current?.querySelector<HTMLElement>("[data-back]")?.focus();
        }} />
        {taken ? <Mine taken={taken} agent={agent} box={box.current} giveBack={() => void giveBack()} use={() => screen.current?.focus()} live={live} /> : null}
        {state.is === "refused" || state.is === "failed" ? <Failure err={state.problem} title="The picture cannot be shown" retry={again} /> : null}
        <div class="row">
          {hands && !taken ? <button class="small" disabled={!live} onClick={() => setAsks(true)}>Take over</button> : null}
          <Whole frame={frame} disabled={!live} />
          <Still run={run} what={what} disabled={!live} />
        </div>
        {note && !taken ? <p class="notice" role="status">{note}</p> : null}
        {taken ? null : (
          <figcaption class="dim small">
            {what === "display" ? <b>The agent shares this display; you watch only.</b> : hands ? <b>You watch only, until you take over.</b> : <b>You watch only.</b>} {says}
          </figcaption>
        )}
        {asks ? <AskTakeover run={run} agent={agent} close={() => setAsks(false)} take={(t) => { setAsks(false); setNote(""); setTaken(t); }} /> : null}
      </figure>
    </>
  );
}

// useWatch watches as long as the component is there. Whoever took over watches by that ticket, once.
function useWatch(box: { current: HTMLDivElement | null }, run: string, agent: string, what: What, taken: Takeover | null, over: (why: string) => void) {
  const [state, setState] = useState<Watched>({ is: "opening", slow: false });
  const [says, setSays] = useState("");
  const screen = useRef<Screen | null>(null);
  const watch = useRef<Watch | null>(null);
  useEffect(() => {
    const w = new Watch({
      once: taken !== null,
      ticket: async () => {
        const t = taken?.ticket ?? (await change<ViewTicket>("POST", runPath(run, "view"), { what }));
        setSays(t.says);
        return t;
      },
      open: async (ticket, ear) => {
        const { connect } = await load();
        const name = ticket.viewOnly ? `live picture of ${names[what]} of ${agent}, view only` : `the browser of ${agent}: mouse and keyboard are yours. Shift Escape leaves it`;
        screen.current = connect(box.current!, ticket, name, ear);
        return screen.current;
      },
      tell: (s) => {
        if (s.is === "over") over(s.why);
        else setState(s);
      },
    });
    watch.current = w;
    const stop = taken ? () => {} : whenHidden(() => w.rest(), () => w.again());
    return () => {
      stop();
      w.close();
      screen.current = null;
    };
  }, [run, what, taken]);
  useEffect(() => {
    if (taken && state.is === "live") screen.current?.focus();
  }, [taken, state.is]);
  return { state, says, screen, again: () => (taken ? over("") : watch.current?.again()) };
}

// useShut tells why there is no guarded browser to see: it is there from the agent's first page until it has been idle. What
// the agent does tells when to look again.
function useShut(can: boolean, state: Watched, news: number, again: () => void): Problem | null {
  const [shut, setShut] = useState<Problem | null>(null);
  const looked = useRef({ at: 0, news: -1 });
  const not = can && state.is === "failed" && state.early;
  useEffect(() => {
    if (not) setShut(state.problem);
    else if (state.is !== "opening") setShut(null);
  }, [not, state.is]);
  useEffect(() => {
    if (!not || looked.current.news === news) return;
    const t = setTimeout(() => {
      looked.current = { at: performance.now(), news };
      again();
    }, Math.max(0, looked.current.at + lookAgain - performance.now()));
    return () => clearTimeout(t);
  }, [news, not]);
  return shut;
}

// load gets noVNC. A page that is older than its daemon finds none.
async function load(): Promise<typeof import("../lib/screen.ts")> {
  try {
    return await import("../lib/screen.ts");
  } catch {
    throw new Problem({ kind: "failed", message: "the part of this page that shows pictures could not be loaded", hint: "reload the page: the daemon may be of another version" });
  }
}

// whenHidden calls hide after nobody has seen the page for a while, and show when somebody does again.
function whenHidden(hide: () => void, show: () => void): () => void {
  let timer = 0;
  let hidden = false;
  const on = () => {
    clearTimeout(timer);
    if (document.visibilityState === "hidden") {
      timer = window.setTimeout(() => {
        hidden = true;
        hide();
      }, hiddenFor);
    } else if (hidden) {
      hidden = false;
      show();
    }
  };
  document.addEventListener("visibilitychange", on);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", on);
  };
}

// StateWords says the state by shape and word.
function StateWords({ state, taken, what }: { state: Watched; taken: boolean; what: What }) {
  const line = (kind: string, word: string, more = "") => <><span class={`state ${kind}`}><i aria-hidden="true" />{word}</span>{more ? <span class="dim"> · {more}</span> : null}</>;
  switch (state.is) {
    case "opening":
      return line("asks", "opening", state.slow ? "it takes longer than usual: what shows it is started with the first who watches, or the machine is busy" : "");
    case "live":
      if (taken) return line("working", "yours", "mouse and keyboard are yours alone");
      return state.slow ? line("asks", "slow", "pictures take more than a second to come") : line("working", "live", "view only");
    case "lost":
      return line("ended", "not connected", "the daemon does not answer; it is tried again");
    case "resting":
      return line("idle", "resting", "nobody looked at this page");
    case "ended":
      return line("ended", "ended", `the run is gone, and ${names[what]} with it`);
    case "refused":
      return line("ended", "refused");
    default:
      return line("ended", "no picture");
  }
}

// Still keeps what is seen as an artifact.
function Still({ run, what, disabled }: { run: string; what: What; disabled: boolean }) {
  const [kept, setKept] = useState<Artifact | null>(null);
  const [busy, setBusy] = useState(false);
  const [err, setErr] = useState<unknown>(null);
  const keep = async () => {
    setBusy(true);
    setErr(null);
    try {
      const a = await change<Artifact>("POST", runPath(run, "still"), { what });
      setKept(a);
      said.value = `Kept ${a.name}`;
    } catch (e) {
      setErr(e);
    }
    setBusy(false);
  };
  return (
    <>
      <button class="small" disabled={disabled || busy} onClick={() => void keep()}>{busy ? "Keeping…" : "Keep still"}</button>
      {kept ? <span class="kept">Kept <ArtifactChip artifact={kept} /></span> : null}
      {err ? <Failure err={err} title="No still was kept" /> : null}
    </>
  );
}

function Whole({ frame, disabled }: { frame: { current: HTMLElement | null }; disabled: boolean }) {
  const [on, setOn] = useState(false);
  useEffect(() => {
    const look = () => setOn(document.fullscreenElement !== null && document.fullscreenElement === frame.current);
    document.addEventListener("fullscreenchange", look);
    return () => document.removeEventListener("fullscreenchange", look);
  }, []);
  if (!document.fullscreenEnabled) return null;
  return <button class="small" disabled={disabled && !on} aria-pressed={on} onClick={() => void (on ? document.exitFullscreen() : frame.current?.requestFullscreen().catch(() => {}))}>{on ? "Leave whole screen" : "Whole screen"}</button>;
}

// AskTakeover says what taking over means before it is done.
function AskTakeover({ run, agent, close, take }: { run: string; agent: string; close: () => void; take: (t: Takeover) => void }) {
  const [busy, setBusy] = useState(false);
  const [err, setErr] = useState<unknown>(null);
  const go = async () => {
    setBusy(true);
    setErr(null);
    try {
      take(await change<Takeover>("POST", runPath(run, "takeover"), { on: true }));
    } catch (e) {
      setErr(e);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Take over the browser" close={close}>
      <p>Mouse and keyboard of this browser become yours alone. Until you give it back, {agent} cannot open, read, click or type in it: each of its browser tools is refused and told why. It goes on with everything else.</p>
      <p>What you leave behind, {agent} finds: the page that is open, what you are logged in to, what stands in fields.</p>
      <p class="dim">It ends when you give it back, leave this view or close the page, or do nothing for half an hour.</p>
      {err ? <Failure err={err} title="It was not taken over" /> : null}
      <p class="row end"><button onClick={close} disabled={busy}>Only watch</button><button class="primary" disabled={busy} onClick={() => void go()}>{busy ? "Taking over…" : "Take over"}</button></p>
    </Dialog>
  );
}

// Mine stands beside a browser that the person has: how to use it, how to give it back, and when that happens by itself.
function Mine({ taken, agent, box, giveBack, use, live }: { taken: Takeover; agent: string; box: HTMLElement | null; giveBack: () => void; use: () => void; live: boolean }) {
  const [until, setUntil] = useState(0);
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const acted = () => setUntil(Date.now() + (taken.idleSeconds ?? 0) * 1_000);
    acted();
    const kinds = ["pointerdown", "pointermove", "keydown", "wheel"] as const;
    for (const k of kinds) box?.addEventListener(k, acted, { capture: true, passive: true });
    const t = setInterval(() => setNow(Date.now()), 1_000);
    return () => {
      clearInterval(t);
      for (const k of kinds) box?.removeEventListener(k, acted, { capture: true });
    };
  }, [taken, box]);
  const soon = taken.idleSeconds !== undefined && taken.idleSeconds > 0 && until - now < warnFor * 1_000;
  return (
    <div class="mine">
      <p>{taken.says || `You have the browser of ${agent}.`}</p>
      {soon ? <p class="notice warning" role="status">Nothing was done for a while: it is given back in {left(new Date(until).toISOString(), now)}. Move the mouse in the picture to keep it.</p> : null}
      <p class="row">
        <button class="primary" data-back onClick={giveBack}><Icon name="check" /> Give back</button>
        <button class="small" disabled={!live} onClick={use}>Type into it</button>
        <small class="dim"><kbd>Shift</kbd> <kbd>Esc</kbd> brings the keyboard back to this page</small>
      </p>
    </div>
  );
}

// Ended says that what was watched is gone.
export function Ended({ what }: { what: What }) {
  return <p class="watch-state" role="status"><StateWords state={{ is: "ended" }} taken={false} what={what} /></p>;
}

// NotLive says how a browser that cannot be watched gets a screen. file: the agent has settings of its own.
export function NotLive({ agent, file }: { agent: string; file: boolean }) {
  return (
    <Empty title="No live picture">
      <p>This run has no screen that can be watched here. {file
        ? <>Give {agent} <b>a screen of the sandbox’s own</b> in <a href={`#/agents/of/${encodeURIComponent(agent)}`}>its settings</a>, or for one session where you start it.</>
        : <>Choose <b>a screen of the sandbox’s own</b> where you <a href={`#/new?agent=${encodeURIComponent(agent)}`}>start a session</a>.</>}</p>
    </Empty>
  );
}
