// The first view: what needs the person, and how to begin.
import { agents, agentsFailed, agentsLoaded } from "../agents.ts";
import { asking, newest, waiting } from "../state.ts";
import { Empty, Failure, Skeleton } from "../ui/basics.tsx";
import { ApprovalCard } from "../ui/cards.tsx";
import { SessionRow } from "./sessions.tsx";
import { loadAgents } from "../agents.ts";

export function Home() {
  const own = agents.value.filter((a) => a.file);
  return (
    <main class="view" id="main" tabIndex={-1}>
      <h1 class="sr">Handler</h1>
      {waiting.value.length + asking.value.length > 0 ? (
        <section aria-label="Needs you">
          <h2>Needs you</h2>
          {waiting.value.map((a) => <ApprovalCard key={a.id} approval={a} />)}
          <ul class="rows">{asking.value.map((s) => <SessionRow key={s.id} s={s} />)}</ul>
        </section>
      ) : null}
      <section aria-label="Talk to">
        <h2>Talk to</h2>
        {agentsFailed.value ? <Failure err={agentsFailed.value} retry={() => void loadAgents()} /> : null}
        {!agentsLoaded.value ? <Skeleton rows={2} /> : null}
        <div class="tiles">
          {[...own, ...agents.value.filter((a) => !a.file)].slice(0, 12).map((a) => (
            <a key={a.name} class="tile" data-stop href={`#/new?agent=${encodeURIComponent(a.name)}`}>
              <b>{a.name}</b>
              <small>{a.description || (!a.file ? "a harness, in the folder you choose" : a.harness)}</small>
            </a>
          ))}
          <a class="tile add" data-stop href="#/agents/new"><b>New agent</b><small>a harness with its own folders, rules and limits</small></a>
        </div>
      </section>
      <section aria-label="Lately">
        <h2>Lately</h2>
        {newest.value.length === 0 ? <Empty title="No sessions yet"><p>Sessions of this page, of <code>handler run</code> and of editors with <code>handler acp</code> all stand here.</p></Empty> : null}
        <ul class="rows">{newest.value.slice(0, 8).map((s) => <SessionRow key={s.id} s={s} />)}</ul>
      </section>
    </main>
  );
}
