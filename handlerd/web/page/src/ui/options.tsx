// The agent's modes and options, where the person may set them.
import { useState } from "preact/hooks";
import { change } from "../lib/api.ts";
import type { ConfigChoice, ConfigOption, Session } from "../lib/types.ts";
import { Failure } from "./basics.tsx";

// Options shows those of a session.
export function Options({ s }: { s: Session }) {
  const [err, setErr] = useState<unknown>(null);
  const set = async (id: string, value: unknown) => {
    setErr(null);
    try {
      await change("POST", `/v1/sessions/${encodeURIComponent(s.id)}/option`, { id, value });
    } catch (e) {
      setErr(e);
    }
  };
  const options = s.options ?? [];
  const modes = options.some((o) => o.category === "mode") ? null : s.modes;
  return (
    <>
      {modes && modes.availableModes?.length > 1 ? (
        <label class="option"><span>Mode</span>
          <select value={modes.currentModeId} onChange={(e) => void set("mode", e.currentTarget.value)}>
            {modes.availableModes.map((m) => <option key={m.id} value={m.id} title={m.description}>{m.name}</option>)}
          </select>
        </label>
      ) : null}
      {options.slice(0, 8).map((o) => <Option key={o.id} o={o} set={(v) => void set(o.id, v)} />)}
      {err ? <Failure err={err} title="The agent kept its setting" /> : null}
    </>
  );
}

function Option({ o, set }: { o: ConfigOption; set: (v: unknown) => void }) {
  if (o.type === "boolean") {
    return <label class="option" title={o.description}><input type="checkbox" checked={o.currentValue === true} onChange={(e) => set(e.currentTarget.checked)} /><span>{o.name}</span></label>;
  }
  const choice = (c: ConfigChoice) => c.options
    ? <optgroup key={c.group ?? c.name} label={c.name ?? c.group}>{c.options.map(choice)}</optgroup>
    : <option key={c.value} value={c.value} title={c.description}>{c.name ?? c.value}</option>;
  return (
    <label class="option" title={o.description}><span>{o.name}</span>
      <select value={String(o.currentValue)} onChange={(e) => set(e.currentTarget.value)}>{(o.options ?? []).map(choice)}</select>
    </label>
  );
}
