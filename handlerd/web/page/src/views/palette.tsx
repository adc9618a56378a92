// Ctrl K: type a few letters of anything and go there.
import { useMemo, useState } from "preact/hooks";
import { agents } from "../agents.ts";
import { go, newest } from "../state.ts";
import { Dialog } from "../ui/basics.tsx";

interface Place {
  name: string;
  about: string;
  hash: string;
}

const places: Place[] = [
  { name: "New session", about: "", hash: "#/new" },
  { name: "New agent", about: "", hash: "#/agents/new" },
  { name: "Needs you", about: "approvals", hash: "#/approvals" },
  { name: "Sessions", about: "", hash: "#/s" },
  { name: "Agents", about: "", hash: "#/agents" },
  { name: "Network", about: "allowed and refused", hash: "#/network" },
  { name: "Artifacts", about: "files of agents", hash: "#/artifacts" },
  { name: "Images", about: "toolboxes, harnesses, addons", hash: "#/images" },
  { name: "Doctor", about: "", hash: "#/doctor" },
];

// rank says how well words fit a name: 0 for not at all.
export function rank(query: string, text: string): number {
  const q = query.toLowerCase().trim();
  const t = text.toLowerCase();
  if (q === "") return 1;
  if (t.startsWith(q)) return 4;
  if (t.includes(" " + q)) return 3;
  if (t.includes(q)) return 2;
  let i = 0;
  for (const c of t) if (c === q[i]) i++;
  return i === q.length ? 1 : 0;
}

export function Palette({ close }: { close: () => void }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const all = useMemo<Place[]>(() => [
    ...places,
    ...newest.value.map((s) => ({ name: s.title || "New session", about: `session of ${s.agent}`, hash: `#/s/${encodeURIComponent(s.id)}` })),
    ...agents.value.map((a) => ({ name: a.name, about: "agent", hash: `#/agents/of/${encodeURIComponent(a.name)}` })),
    ...agents.value.map((a) => ({ name: `New session with ${a.name}`, about: "", hash: `#/new?agent=${encodeURIComponent(a.name)}` })),
  ], [newest.value, agents.value]);
  const found = useMemo(() => all.map((p, i) => ({ p, i, r: rank(query, p.name) || (rank(query, p.about) > 1 ? 1 : 0) }))
    .filter((x) => x.r > 0).sort((a, b) => b.r - a.r || a.i - b.i).slice(0, 12).map((x) => x.p), [all, query]);
  const open = (p: Place | undefined) => {
    if (!p) return;
    close();
    go(p.hash);
  };
  const keys = (e: KeyboardEvent) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      setAt((at + (e.key === "ArrowDown" ? 1 : found.length - 1)) % Math.max(1, found.length));
    }
    if (e.key === "Enter") {
      e.preventDefault();
      open(found[at]);
    }
  };
  return (
    <Dialog title="Go to" close={close}>
      <div class="palette">
        <input type="search" role="combobox" list={undefined} aria-expanded="true" aria-controls="palette-list" aria-activedescendant={found[at] ? `palette-${at}` : undefined} aria-label="Go to" autofocus value={query} onInput={(e) => { setQuery(e.currentTarget.value); setAt(0); }} onKeyDown={keys} placeholder="a session, an agent, a view" />
        <ul id="palette-list" role="listbox" aria-label="places">
          {found.map((p, i) => <li key={p.hash + p.name} id={`palette-${i}`} role="option" aria-selected={i === at} onClick={() => open(p)} onMouseMove={() => setAt(i)}><b>{p.name}</b> <small>{p.about}</small></li>)}
          {found.length === 0 ? <li class="dim" role="option" aria-selected={false} aria-disabled="true">nothing of that name</li> : null}
        </ul>
      </div>
    </Dialog>
  );
}
