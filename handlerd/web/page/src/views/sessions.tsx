// All sessions: search, resume, rename, delete.
import { useEffect, useState } from "preact/hooks";
import { get } from "../lib/api.ts";
import type { Session } from "../lib/types.ts";
import { tilde } from "../model/words.ts";
import { me, newest } from "../state.ts";
import { Empty, Failure, Menu, State, Time } from "../ui/basics.tsx";
import { Delete, Rename, stateOf } from "./session.tsx";

const clients: Record<string, string> = { acp: "editor", run: "terminal", page: "" };

// SessionRow is one line of a list.
export function SessionRow({ s }: { s: Session }) {
  const [dialog, setDialog] = useState<"" | "rename" | "delete">("");
  return (
    <li class="session-row">
      <a data-stop href={`#/s/${encodeURIComponent(s.id)}`}>
        <span class="title">{s.title || "New session"}</span>
        <span class="dim">{s.agent} · {tilde(s.cwd, me.value?.home ?? "")}{clients[s.client] ? ` · ${clients[s.client]}` : ""}</span>
      </a>
      <State what={stateOf(s)} />
      <span class="dim when"><Time at={s.updated} /></span>
      <Menu label={`More about ${s.title || "the session"}`}>
        <button onClick={() => setDialog("rename")}>Rename</button>
        <button class="danger" onClick={() => setDialog("delete")}>Delete</button>
      </Menu>
      {dialog === "rename" ? <Rename s={s} close={() => setDialog("")} /> : null}
      {dialog === "delete" ? <Delete s={s} close={() => setDialog("")} /> : null}
    </li>
  );
}

export function Sessions() {
  const [query, setQuery] = useState("");
  const [found, setFound] = useState<Session[] | null>(null);
  const [err, setErr] = useState<unknown>(null);
  useEffect(() => {
    const q = query.trim();
    if (q === "") {
      setFound(null);
      setErr(null);
      return;
    }
    const stop = new AbortController();
    const t = setTimeout(() => {
      get<Session[] | null>("/v1/sessions?" + new URLSearchParams({ query: q, limit: "100" }).toString(), stop.signal).then(
        (l) => { setFound(l ?? []); setErr(null); },
        (e) => { if (!stop.signal.aborted) setErr(e); },
      );
    }, 150);
    return () => {
      clearTimeout(t);
      stop.abort();
    };
  }, [query]);
  const list = found ?? newest.value;
  return (
    <main class="view" id="main" tabIndex={-1}>
      <header class="head"><h1>Sessions</h1><a class="button primary" href="#/new">New session</a></header>
      <input type="search" placeholder="Search titles, agents and folders" aria-label="Search sessions" value={query} onInput={(e) => setQuery(e.currentTarget.value)} />
      {err ? <Failure err={err} /> : null}
      <ul class="rows">{list.map((s) => <SessionRow key={s.id} s={s} />)}</ul>
      {list.length === 0 ? (
        query ? <Empty title={`Nothing holds “${query}”`}><button onClick={() => setQuery("")}>All sessions</button></Empty>
          : <Empty title="No sessions yet"><p>Start one here, or with <code>handler run demo</code></p></Empty>
      ) : null}
    </main>
  );
}
