// Everything that waits for the person, in one place.
import { asking, newest, waiting } from "../state.ts";
import { Empty } from "../ui/basics.tsx";
import { ApprovalCard } from "../ui/cards.tsx";
import { SessionRow } from "./sessions.tsx";

export function Approvals() {
  const none = waiting.value.length + asking.value.length === 0;
  return (
    <main class="view narrow" id="main" tabIndex={-1}>
      <header class="head"><h1>Needs you</h1></header>
      <p class="dim keys"><kbd>J</kbd> <kbd>K</kbd> move · <kbd>A</kbd> allow once · <kbd>R</kbd> refuse · <kbd>Esc</kbd> back</p>
      {waiting.value.map((a) => <ApprovalCard key={a.id} approval={a} />)}
      {asking.value.length > 0 ? <><h2>Agents ask</h2><ul class="rows">{asking.value.map((s) => <SessionRow key={s.id} s={s} />)}</ul></> : null}
      {none ? <Empty title="Nothing waits for you">{newest.value.some((s) => s.run) ? <p>When an agent wants more than its rules give, it stands here and in its session.</p> : <a class="button" href="#/new">New session</a>}</Empty> : null}
    </main>
  );
}
