// A new session: which agent, in which folder, and its first message.
import { useEffect, useState } from "preact/hooks";
import { change } from "../lib/api.ts";
import type { Session } from "../lib/types.ts";
import { agents, agentsFailed, agentsLoaded, loadAgents } from "../agents.ts";
import { asks, screenOf, type Screen } from "../model/display.ts";
import type { AgentInfo } from "../model/settings.ts";
import { tilde } from "../model/words.ts";
import { go, me, newest, putSession } from "../state.ts";
import { Failure, Skeleton } from "../ui/basics.tsx";
import { ScreenChoice, useDisplay } from "../ui/display.tsx";

// expand makes a folder absolute: "~" is the person's home.
export function expand(path: string, home: string): string {
  const p = path.trim();
  if (p === "~" || p.startsWith("~/")) return home + p.slice(1);
  return p;
}

// ownScreen gives the screen that an agent's settings say.
export function ownScreen(a: AgentInfo | undefined): Screen {
  return screenOf(a?.displayMode ?? a?.display);
}

export function NewSession({ agent }: { agent: string }) {
  const home = me.value?.home ?? "";
  const usual = newest.value.find((s) => agent === "" || s.agent === agent)?.cwd ?? "";
  const [name, setName] = useState(agent || newest.value[0]?.agent || "");
  const [cwd, setCwd] = useState(tilde(usual, home));
  const [wanted, setWanted] = useState<Screen | null>(null); // null: as in its settings
  const state = useDisplay();
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [err, setErr] = useState<unknown>(null);
  const chosen = agents.value.find((a) => a.name === name);
  const own = ownScreen(chosen);
  const screen = wanted ?? own;
  const folders = [...new Set(newest.value.map((s) => tilde(s.cwd, home)))].slice(0, 12);
  useEffect(() => {
    if (name === "" && agents.value.length > 0) setName(agents.value[0]!.name);
  }, [agents.value]);

  const begin = async (e: Event) => {
    e.preventDefault();
    if (busy) return;
    setBusy(true);
    setErr(null);
    try {
      const s = await change<Session>("POST", "/v1/sessions", { agent: name, cwd: expand(cwd, home), ...asks(screen, own), wayland: {}, limits: {} });
      putSession(s);
      if (text.trim() !== "") {
        try {
          await change("POST", `/v1/sessions/${encodeURIComponent(s.id)}/prompt`, { content: [{ type: "text", text: text.trim() }] });
        } catch (err2) {
          localStorage.setItem(`draft:${s.id}`, text); // the session's own view says why, when it is sent from there
          throw err2;
        }
      }
      go(`#/s/${encodeURIComponent(s.id)}`);
    } catch (e2) {
      setErr(e2);
      setBusy(false);
    }
  };
  return (
    <main class="view narrow" id="main" tabIndex={-1}>
      <h1>New session</h1>
      {agentsFailed.value ? <Failure err={agentsFailed.value} title="The agents could not be read" retry={() => void loadAgents()} /> : null}
      {!agentsLoaded.value ? <Skeleton /> : (
        <form onSubmit={begin}>
          <div class="field">
            <label for="agent">Agent</label>
            <select id="agent" value={name} onChange={(e) => { setName(e.currentTarget.value); setWanted(null); }} required>
              {agents.value.some((a) => a.file) ? <optgroup label="Yours">{agents.value.filter((a) => a.file).map((a) => <option key={a.name} value={a.name}>{a.name}</option>)}</optgroup> : null}
              <optgroup label="Harnesses as they come">{agents.value.filter((a) => !a.file).map((a) => <option key={a.name} value={a.name}>{a.name}</option>)}</optgroup>
            </select>
            <small>{chosen?.description || "An agent is a harness with its own folders, rules and limits."}</small>
          </div>
          <div class="field">
            <label for="cwd">Folder</label>
            <input id="cwd" value={cwd} onInput={(e) => setCwd(e.currentTarget.value)} placeholder="~/src/project" list="folders" required autocomplete="off" spellcheck={false} />
            <datalist id="folders">{folders.map((f) => <option key={f} value={f} />)}</datalist>
            <small>The agent works here. It sees this folder{chosen && chosen.file ? ", or the scopes of its own settings," : ""} and nothing else of this machine.</small>
          </div>
          <ScreenChoice value={screen} set={setWanted} state={state} own={own} />
          <div class="field">
            <label for="first">First message (may stay empty)</label>
            <textarea id="first" rows={4} value={text} onInput={(e) => setText(e.currentTarget.value)} onKeyDown={(e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void begin(e); }} />
          </div>
          {err ? <Failure err={err} title="The session did not start" /> : null}
          <p class="row end">{busy ? <span class="dim" role="status">a sandbox is made…</span> : null}<button class="primary" disabled={busy || name === ""}>Start</button></p>
        </form>
      )}
    </main>
  );
}
