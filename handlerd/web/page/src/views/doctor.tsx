// What handler doctor finds, with the command that mends it.
import { useCallback, useEffect, useState } from "preact/hooks";
import { get } from "../lib/api.ts";
import type { Finding } from "../lib/types.ts";
import { one } from "../model/words.ts";
import { me } from "../state.ts";
import { Copy } from "../ui/code.tsx";
import { Failure, Skeleton } from "../ui/basics.tsx";

const order = ["problem", "remark", "ok"];
const signs: Record<string, string> = { ok: "✓", remark: "!", problem: "✗" };

export function Doctor() {
  const [list, setList] = useState<Finding[] | null>(null);
  const [err, setErr] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const load = useCallback(async () => {
    setBusy(true);
    setErr(null);
    try {
      setList((await get<Finding[] | null>("/v1/doctor")) ?? []);
    } catch (e) {
      setErr(e);
    }
    setBusy(false);
  }, []);
  useEffect(() => void load(), [load]);
  const sorted = [...(list ?? [])].sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
  const n = (level: string) => sorted.filter((f) => f.level === level).length;
  return (
    <main class="view narrow" id="main" tabIndex={-1}>
      <header class="head"><h1>Doctor</h1><button onClick={() => void load()} disabled={busy}>{busy ? "Looking…" : "Look again"}</button></header>
      {err ? <Failure err={err} retry={() => void load()} /> : null}
      {!list && !err ? <Skeleton rows={6} /> : null}
      {list ? <p class="dim" role="status">{n("problem") === 0 ? "No problem" : one(n("problem"), "problem")}, {one(n("remark"), "remark")} · handlerd {me.value?.version}</p> : null}
      <ul class="findings">
        {sorted.map((f) => (
          <li key={f.id} class={f.level} data-stop tabIndex={-1}>
            <span class="sign" role="img" aria-label={f.level}>{signs[f.level] ?? "?"}</span>
            <div>
              <b>{f.title}</b>
              {f.detail ? <p>{f.detail}</p> : null}
              {(f.remedy ?? []).map((r) => <p key={r} class="command"><code>{r}</code><Copy text={r} /></p>)}
            </div>
          </li>
        ))}
      </ul>
    </main>
  );
}
