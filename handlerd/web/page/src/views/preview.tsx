// The web servers in a session's sandbox, shown in a frame of their own origin: they share nothing with this page.
import { useCallback, useEffect, useState } from "preact/hooks";
import { change, get } from "../lib/api.ts";
import type { Session } from "../lib/types.ts";
import { Empty, Failure, Icon } from "../ui/basics.tsx";

interface Forwarded {
  id: string;
  port: number;
  url: string;
}

const usual = [3000, 5173, 8000, 8080, 4321];

// Preview shows a port of s's run.
export function Preview({ s }: { s: Session }) {
  const run = s.run ?? "";
  const path = `/v1/runs/${encodeURIComponent(run)}/forwards`;
  const [open, setOpen] = useState<Forwarded[]>([]);
  const [shown, setShown] = useState("");
  const [port, setPort] = useState("");
  const [err, setErr] = useState<unknown>(null);
  const [again, setAgain] = useState(0);
  const load = useCallback(async () => {
    if (run === "") return;
    try {
      const l = (await get<Forwarded[] | null>(path)) ?? [];
      setOpen(l);
      setShown((id) => (l.some((f) => f.id === id) ? id : l[0]?.id ?? ""));
    } catch (e) {
      setErr(e);
    }
  }, [path, run]);
  useEffect(() => void load(), [load]);
  if (run === "") return <Empty title="No run"><p>When the session runs, the web servers in its sandbox can be looked at here.</p></Empty>;
  const forward = async (p: number) => {
    setErr(null);
    try {
      const f = await change<Forwarded>("POST", path, { port: p });
      await load();
      setShown(f.id);
      setAgain((n) => n + 1);
    } catch (e) {
      setErr(e);
    }
  };
  const close = async (f: Forwarded) => {
    setErr(null);
    try {
      await change("DELETE", `${path}/${encodeURIComponent(f.id)}`);
    } catch (e) {
      setErr(e);
    }
    await load();
  };
  const now = open.find((f) => f.id === shown);
  return (
    <div class="previewer">
      <form class="row" onSubmit={(e) => { e.preventDefault(); void forward(Number(port)); }}>
        <input type="number" list="ports" min={1} max={65535} required aria-label="port in the sandbox" placeholder="port, such as 5173" value={port} onInput={(e) => setPort(e.currentTarget.value)} />
        <datalist id="ports">{usual.map((p) => <option key={p} value={p} />)}</datalist>
        <button class="small">Show</button>
      </form>
      {err ? <Failure err={err} /> : null}
      {open.length > 0 ? (
        <p class="row">
          {open.map((f) => (
            <span key={f.id} class="chip">
              <button class="quiet small" aria-pressed={f.id === shown} onClick={() => setShown(f.id)}>{f.port}</button>
              <button class="quiet small" aria-label={`Close port ${f.port}`} onClick={() => void close(f)}><Icon name="close" /></button>
            </span>
          ))}
          {now ? <button class="small" onClick={() => setAgain(again + 1)}>Load again</button> : null}
        </p>
      ) : null}
      {now ? (
        <>
          <iframe key={`${now.id}${again}`} src={now.url} title={`port ${now.port} of the sandbox`} sandbox="allow-scripts allow-forms allow-same-origin allow-modals" referrerpolicy="no-referrer" />
          <p class="dim small">What you see and type here is the sandbox’s: never a password that you did not mean for {s.agent}.</p>
        </>
      ) : <Empty title="Nothing is shown"><p>Give the port of a web server that {s.agent} started, such as that of npm run dev.</p></Empty>}
    </div>
  );
}
