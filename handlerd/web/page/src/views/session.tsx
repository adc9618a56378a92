// A session: its conversation, where to write, and beside it what the agent does elsewhere.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { change } from "../lib/api.ts";
import type { ContentBlock, Session } from "../lib/types.ts";
import { Followed } from "../session.ts";
import { agents } from "../agents.ts";
import { asks, type Screen } from "../model/display.ts";
import { count, money, tilde } from "../model/words.ts";
import { approvalsOf, connection, dropSession, go, me, putSession, said, sessions } from "../state.ts";
import { Dialog, Empty, Failure, Icon, Menu, Skeleton, State } from "../ui/basics.tsx";
import { Composer } from "../ui/composer.tsx";
import { NoScreen, ScreenMenu, useDisplay } from "../ui/display.tsx";
import { Options } from "../ui/options.tsx";
import { Log } from "./log.tsx";
import { ownScreen } from "./new.tsx";
import { Side } from "./side.tsx";

const path = (id: string) => `/v1/sessions/${encodeURIComponent(id)}`;

// stateOf gives a session's state as a person sees it.
export function stateOf(s: Session): "working" | "asks" | "idle" | "ended" {
  if ((s.questions > 0 && s.ours) || approvalsOf(s).length > 0) return "asks";
  if (s.turn === "working") return "working";
  return s.run ? "idle" : "ended";
}

// SessionView shows the session with an id.
export function SessionView({ id }: { id: string }) {
  const followed = useMemo(() => new Followed(id), [id]);
  useEffect(() => () => followed.close(), [followed]);
  const s = sessions.value.get(id);
  const side = useSignal(window.matchMedia("(min-width: 1180px)").matches);
  if (followed.gone.value) {
    return (
      <main class="view" id="main" tabIndex={-1}>
        <Failure err={followed.gone.value} title="This session cannot be shown" retry={() => followed.retry()} />
        <p><a href="#/s">All sessions</a></p>
      </main>
    );
  }
  if (!s) return <main class="view" id="main" tabIndex={-1}><Skeleton rows={6} /></main>;
  return (
    <div class={`session${side.value ? " with-side" : ""}`}>
      <main class="talk" id="main" tabIndex={-1}>
        <Header s={s} side={side.value} toggle={() => (side.value = !side.value)} />
        <Conversation s={s} followed={followed} />
      </main>
      {side.value ? <Side s={s} followed={followed} close={() => (side.value = false)} /> : null}
    </div>
  );
}

function Header({ s, side, toggle }: { s: Session; side: boolean; toggle: () => void }) {
  const [dialog, setDialog] = useState<"" | "rename" | "delete">("");
  const [err, setErr] = useState<unknown>(null);
  const act = async (what: () => Promise<unknown>) => {
    setErr(null);
    try {
      await what();
    } catch (e) {
      setErr(e);
    }
  };
  return (
    <>
      <header class="bar">
        <a class="button quiet back" href="#/s" aria-label="All sessions"><Icon name="menu" /></a>
        <div class="name">
          <h1>{s.title || "New session"}</h1>
          <p class="dim"><a href={`#/agents/of/${encodeURIComponent(s.agent)}`}>{s.agent}</a> · {tilde(s.cwd, me.value?.home ?? "")}{s.client === "acp" ? " · from an editor" : s.client === "run" ? " · from a terminal" : ""}</p>
        </div>
        <State what={stateOf(s)} />
        <Menu label="More about this session">
          <button onClick={() => setDialog("rename")}>Rename</button>
          {s.ours && s.run ? <button onClick={() => void act(() => change("POST", path(s.id) + "/end"))}>End the run, keep the session</button> : null}
          {s.run && !s.ours ? <button onClick={() => void act(() => change("DELETE", `/v1/runs/${encodeURIComponent(s.run!)}`))}>Stop the run</button> : null}
          <button class="danger" onClick={() => setDialog("delete")}>Delete</button>
        </Menu>
        <button class="quiet" aria-pressed={side} aria-label="Browser, files and network" title="Browser, files and network" onClick={toggle}><Icon name="panel" /></button>
      </header>
      {err ? <Failure err={err} /> : null}
      {dialog === "rename" ? <Rename s={s} close={() => setDialog("")} /> : null}
      {dialog === "delete" ? <Delete s={s} close={() => setDialog("")} /> : null}
    </>
  );
}

// Rename gives a session a title of the person's.
export function Rename({ s, close }: { s: Session; close: () => void }) {
  const [title, setTitle] = useState(s.title);
  const [err, setErr] = useState<unknown>(null);
  const save = async (e: Event) => {
    e.preventDefault();
    try {
      await change("POST", path(s.id) + "/title", { title: title.trim() });
      close();
    } catch (e2) {
      setErr(e2);
    }
  };
  return (
    <Dialog title="Rename the session" close={close}>
      <form onSubmit={save}>
        <div class="field"><label for="title">Title</label><input id="title" value={title} onInput={(e) => setTitle(e.currentTarget.value)} maxLength={200} autocomplete="off" /><small>Empty goes back to the agent’s own title.</small></div>
        {err ? <Failure err={err} /> : null}
        <p class="row end"><button type="button" onClick={close}>Cancel</button><button class="primary">Rename</button></p>
      </form>
    </Dialog>
  );
}

// Delete removes a session, and says what goes with it.
export function Delete({ s, close }: { s: Session; close: () => void }) {
  const [err, setErr] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    try {
      await change("DELETE", path(s.id));
      dropSession(s.id);
      close();
      if (location.hash.startsWith("#/s/")) go("#/s");
    } catch (e) {
      setErr(e);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Delete the session" close={close}>
      <p>“{s.title || "New session"}”, its {s.events} events and the artifacts of it are removed from this machine.{s.run ? s.ours ? " Its run is ended." : " Its run goes on where it was started." : ""} What the agent did in your folders stays.</p>
      {err ? <Failure err={err} /> : null}
      <p class="row end"><button onClick={close} disabled={busy}>Keep it</button><button class="danger" disabled={busy} onClick={() => void remove()}>Delete</button></p>
    </Dialog>
  );
}

function Conversation({ s, followed }: { s: Session; followed: Followed }) {
  followed.version.value; // drawn again with each frame's events
  const c = followed.conversation;
  const working = s.turn === "working" || c.working;
  const send = async (content: ContentBlock[]) => {
    await change("POST", path(s.id) + "/prompt", { content });
    followed.sent.value++;
  };
  const stop = async () => {
    await change("POST", path(s.id) + "/cancel");
    said.value = "Stopping";
  };
  return (
    <>
      {followed.ready.value ? null : <div class="log"><div class="column"><Skeleton rows={7} /></div></div>}
      {followed.ready.value && c.items.length === 0 ? <Empty title={`${s.agent} is ready`}><p>Say what you want done. It sees {tilde(s.cwd, me.value?.home ?? "")} and nothing else of this machine.</p></Empty> : null}
      {followed.ready.value && c.items.length > 0 ? <Log followed={followed} s={s} working={working} /> : null}
      <div class="foot">
        {connection.value === "lost" ? <p class="problem" role="status">The daemon does not answer; what is missed meanwhile comes when it is back.</p> : null}
        <Bottom s={s} working={working} send={send} stop={stop} />
      </div>
    </>
  );
}

// Bottom is the composer, or why there is none and what to do.
function Bottom({ s, working, send, stop }: { s: Session; working: boolean; send: (c: ContentBlock[]) => Promise<void>; stop: () => Promise<void> }) {
  const [err, setErr] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const own = ownScreen(agents.value.find((a) => a.name === s.agent));
  const [wanted, setWanted] = useState<Screen | null>(null);
  const screen = wanted ?? own;
  const resume = async () => {
    setBusy(true);
    setErr(null);
    try {
      putSession(await change<Session>("POST", path(s.id) + "/continue", { ...asks(screen, own), wayland: {}, limits: {} }));
    } catch (e) {
      setErr(e);
    }
    setBusy(false);
  };
  if (s.ours && s.run) {
    return (
      <>
        <Composer key={s.id} session={s} send={send} stop={stop} working={working} why="" />
        <div class="under"><Options s={s} /><UsageLine s={s} /></div>
      </>
    );
  }
  if (s.run) {
    return <p class="other">{s.client === "run" ? "This session runs in a terminal" : "This session runs in an editor"}; you watch it live and answer Handler’s questions here. When it has ended you can continue it here. <UsageLine s={s} /></p>;
  }
  return (
    <div class="other">
      {s.continues === "" ? (
        <p>This session has ended, and {s.harness} cannot take one up again. <a href={`#/new?agent=${encodeURIComponent(s.agent)}`}>Start a new one with {s.agent}</a></p>
      ) : (
        <>
          <p class="row"><span>This session has ended. A fresh sandbox takes it up where it was.</span><span class="row"><ScreenMenu value={screen} set={setWanted} own={own} /><button class="primary" disabled={busy} onClick={() => void resume()}>{busy ? "Starting…" : "Continue"}</button></span></p>
          {screen === "wayland" ? <OwnScreen set={setWanted} /> : null}
        </>
      )}
      {err ? <Failure err={err} title="It could not be continued" /> : null}
    </div>
  );
}

// OwnScreen says where the person's own screen cannot be had, and offers the other.
function OwnScreen({ set }: { set: (s: Screen) => void }) {
  return <NoScreen value="wayland" set={set} state={useDisplay()} />;
}

function UsageLine({ s }: { s: Session }) {
  const u = s.usage;
  if (!u || (!u.used && !u.cost?.amount)) return null;
  const cost = u.cost?.amount ? money(u.cost.amount, u.cost.currency ?? "USD") : "";
  return (
    <span class="usage" title="what the agent says of its context and cost">
      {u.used && u.size ? <meter min={0} max={u.size} value={u.used} aria-label="context used" /> : null}
      {u.used ? `${count(u.used)}${u.size ? ` of ${count(u.size)}` : ""} tokens` : ""}{cost ? ` · ${cost}` : ""}
    </span>
  );
}
