// The left column: what needs the person first, then sessions, agents and the rest.
import { agents } from "../agents.ts";
import { asking, connection, needs, newest, palette, route, sessionOf, waiting } from "../state.ts";
import { Icon, type IconName } from "../ui/basics.tsx";
import { stateOf } from "./session.tsx";

const shown = 12;

export function Sidebar() {
  const r = route.value;
  const here = (view: string) => (r.view === view ? "page" as const : undefined);
  const item = (hash: string, name: string, icon: IconName, view: string) => (
    <a class="entry" href={hash} aria-current={here(view)}><Icon name={icon} /><span>{name}</span></a>
  );
  return (
    <nav class="sidebar" aria-label="Handler">
      <header>
        <a class="brand" href="#/">Handler</a>
        <Link />
        <button class="quiet small" onClick={() => (palette.value = true)} title="Go anywhere" aria-label="Go anywhere (Ctrl K)"><kbd>Ctrl K</kbd></button>
      </header>
      <a class="button new" href="#/new"><Icon name="plus" /> New session</a>
      {needs.value > 0 ? (
        <section aria-label="Needs you">
          <h2 class="needs">Needs you <b class="count">{needs.value}</b></h2>
          {waiting.value.slice(0, 6).map((a) => {
            const s = sessionOf(a);
            return <a key={a.id} class="entry" href={s ? `#/s/${encodeURIComponent(s.id)}` : "#/approvals"}><i class="dot asks" aria-hidden="true" /><span>{a.agent}: {a.text}</span></a>;
          })}
          {asking.value.slice(0, 6).map((s) => <a key={s.id} class="entry" href={`#/s/${encodeURIComponent(s.id)}`}><i class="dot asks" aria-hidden="true" /><span>{s.agent} asks</span></a>)}
        </section>
      ) : null}
      <section aria-label="Sessions">
        <h2><a href="#/s">Sessions</a></h2>
        {newest.value.slice(0, shown).map((s) => {
          const state = stateOf(s);
          return (
            <a key={s.id} class="entry" href={`#/s/${encodeURIComponent(s.id)}`} aria-current={r.view === "session" && r.id === s.id ? "page" : undefined} title={`${s.title || "New session"}, ${s.agent}, ${state}`}>
              <i class={`dot ${state}`} aria-hidden="true" /><span>{s.title || "New session"}</span><span class="sr">{state}</span>
            </a>
          );
        })}
        {newest.value.length > shown ? <a class="entry dim" href="#/s"><span>all {newest.value.length}</span></a> : null}
      </section>
      <section aria-label="Agents">
        <h2><a href="#/agents">Agents</a></h2>
        {agents.value.filter((a) => a.file).slice(0, 8).map((a) => (
          <a key={a.name} class="entry" href={`#/agents/of/${encodeURIComponent(a.name)}`} aria-current={r.view === "agent" && r.name === a.name ? "page" : undefined}><Icon name="agent" /><span>{a.name}</span></a>
        ))}
      </section>
      <section class="rest" aria-label="More">
        {item("#/approvals", "Approvals", "bell", "approvals")}
        {item("#/network", "Network", "net", "network")}
        {item("#/artifacts", "Artifacts", "file", "artifacts")}
        {item("#/images", "Images", "box", "images")}
        {item("#/doctor", "Doctor", "doctor", "doctor")}
      </section>
      <p class="sr" role="status">{connection.value === "lost" ? "the daemon does not answer" : ""}</p>
    </nav>
  );
}

// Link says whether what stands here is live.
function Link() {
  if (connection.value === "live") return null;
  return <span class="lost" role="status">{connection.value === "starting" ? "connecting…" : "reconnecting…"}</span>;
}
