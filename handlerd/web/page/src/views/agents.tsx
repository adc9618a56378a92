// The agents.
import { agents, agentsFailed, agentsLoaded, loadAgents } from "../agents.ts";
import { Empty, Failure, Skeleton } from "../ui/basics.tsx";

export function AgentList() {
  const own = agents.value.filter((a) => a.file);
  return (
    <main class="view" id="main" tabIndex={-1}>
      <header class="head"><h1>Agents</h1><a class="button primary" href="#/agents/new">New agent</a></header>
      {agentsFailed.value ? <Failure err={agentsFailed.value} retry={() => void loadAgents()} /> : null}
      {!agentsLoaded.value ? <Skeleton rows={4} /> : null}
      <div class="tiles">
        {own.map((a) => (
          <a key={a.name} class="tile" data-stop href={`#/agents/of/${encodeURIComponent(a.name)}`}><b>{a.name}</b><small>{a.harness}{a.displayMode === "vnc" ? " · a screen of its own" : a.display ? " · shows windows" : ""}</small>{a.problem ? <small class="bad">{a.problem}</small> : null}{a.description ? <small>{a.description}</small> : null}</a>
        ))}
      </div>
      {agentsLoaded.value && own.length === 0 ? <Empty title="No agents of yours yet"><p>An agent is a harness with its own folders, network rules, limits and secrets, kept as one file in ~/.config/handler/agents.</p></Empty> : null}
      <h2>Harnesses as they come</h2>
      <div class="tiles">
        {agents.value.filter((a) => !a.file).map((a) => <a key={a.name} class="tile" data-stop href={`#/new?agent=${encodeURIComponent(a.name)}`}><b>{a.name}</b><small>{a.description || "in the folder you choose"}</small></a>)}
      </div>
    </main>
  );
}
