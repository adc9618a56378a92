// The frame of the page: sidebar, the view that the address names, the bar at the bottom of a narrow one.
import { useEffect } from "preact/hooks";
import { connection, failed, loaded, needs, palette, route, said, sessions } from "./state.ts";
import { Failure, Icon, Skeleton, type IconName } from "./ui/basics.tsx";
import { Sidebar } from "./views/sidebar.tsx";
import { Palette } from "./views/palette.tsx";
import { Home } from "./views/home.tsx";
import { SessionView } from "./views/session.tsx";
import { Sessions } from "./views/sessions.tsx";
import { NewSession } from "./views/new.tsx";
import { AgentList } from "./views/agents.tsx";
import { AgentEditor } from "./views/editor.tsx";
import { Approvals } from "./views/approvals.tsx";
import { Network } from "./views/network.tsx";
import { Artifacts } from "./views/artifacts.tsx";
import { Doctor } from "./views/doctor.tsx";
import { Images } from "./views/images.tsx";
import { keyboard } from "./keys.ts";


// App is the whole page.
export function App() {
  useEffect(() => keyboard(() => (palette.value = !palette.value)), []);
  useTitle();
  if (connection.value === "login") return <Login />;
  return (
    <div class="app">
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
      <Sidebar />
      <View />
      <BottomBar />
      {palette.value ? <Palette close={() => (palette.value = false)} /> : null}
      <p class="sr" role="status" aria-live="polite">{said.value}</p>
    </div>
  );
}

function useTitle(): void {
  const r = route.value;
  const s = r.view === "session" ? sessions.value.get(r.id) : undefined;
  const n = needs.value;
  const names: Record<string, string> = { approvals: "Needs you", network: "Network", artifacts: "Artifacts", doctor: "Doctor", images: "Images", agents: "Agents", agent: "Agent", new: "New session", sessions: "Sessions" };
  const title = `${n > 0 ? `(${n}) ` : ""}${s ? (s.title || s.agent) + " · " : names[r.view] ? names[r.view] + " · " : ""}Handler`;
  useEffect(() => {
    document.title = title;
  }, [title]);
}

function View() {
  const r = route.value;
  if (!loaded.value) {
    return (
      <main class="view" id="main" tabIndex={-1}>
        {failed.value && connection.value !== "starting" ? <Failure err={failed.value} title="The page has nothing to show yet" /> : <Skeleton rows={6} />}
      </main>
    );
  }
  switch (r.view) {
    case "session":
      return <SessionView key={r.id} id={r.id} />;
    case "sessions":
      return <Sessions />;
    case "new":
      return <NewSession key={r.agent ?? ""} agent={r.agent ?? ""} />;
    case "agents":
      return <AgentList />;
    case "agent":
      return <AgentEditor key={r.fresh ? "" : r.name} name={r.name} />;
    case "approvals":
      return <Approvals />;
    case "network":
      return <Network />;
    case "artifacts":
      return <Artifacts />;
    case "doctor":
      return <Doctor />;
    case "images":
      return <Images />;
    default:
      return <Home />;
  }
}

// BottomBar is the way around at 360 px.
function BottomBar() {
  const r = route.value.view;
  const link = (hash: string, name: string, icon: IconName, here: boolean, n = 0) => (
    <a href={hash} aria-current={here ? "page" : undefined}><Icon name={icon} /><span>{name}</span>{n > 0 ? <b class="count">{n}</b> : null}</a>
  );
  return (
    <nav class="bottom" aria-label="Views">
      {link("#/s", "Sessions", "talk", r === "sessions" || r === "session")}
      {link("#/approvals", "Needs you", "bell", r === "approvals", needs.value)}
      {link("#/new", "New", "plus", r === "new")}
      {link("#/agents", "Agents", "agent", r === "agents" || r === "agent")}
      <button onClick={() => (palette.value = true)}><Icon name="search" /><span>More</span></button>
    </nav>
  );
}

function Login() {
  return (
    <main class="login" id="main">
      <h1>Handler</h1>
      <p>This browser is not logged in. The page is opened by a link that is good once:</p>
      <p class="command"><code>handler web</code></p>
      <p class="dim">From another machine: <code>ssh -L 7766:127.0.0.1:7766 HOST handler web --print</code></p>
    </main>
  );
}
