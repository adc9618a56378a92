// The plain fields of the editor: one line of meaning below each, its default where nothing is said.
import { useState } from "preact/hooks";
import { at, lines, pairs, unpairs, type Dict, type Field, type Value } from "../model/settings.ts";
import { Switch } from "../ui/basics.tsx";

// A Form is what the parts of the editor change.
export interface Form {
  settings: Dict;
  defaults: Dict | null;
  set: (path: string[], v: Value) => void;
  edit: (d: Dict) => void;
}

// Plain shows fields.
export function Plain({ form, fields }: { form: Form; fields: Field[] }) {
  return <>{fields.map((f) => <One key={f.path.join(".")} form={form} f={f} />)}</>;
}

// words gives a default as it stands below a field.
export function words(v: Value): string {
  if (v === undefined || v === null || v === "" || (Array.isArray(v) && v.length === 0)) return "";
  if (v === false) return "off";
  if (v === true) return "on";
  return Array.isArray(v) ? v.join(", ") : typeof v === "object" ? "" : String(v);
}

// One shows a field.
export function One({ form, f }: { form: Form; f: Field }) {
  const id = "f-" + f.path.join("-").replace(/[^A-Za-z0-9-]/g, "_");
  const v = at(form.settings, f.path);
  const usual = words(at(form.defaults, f.path));
  const about = <small id={id + "-a"}>{f.about}{usual && f.kind !== "choice" ? ` Default: ${usual}.` : ""}</small>;
  const set = (x: Value) => form.set(f.path, x);
  if (f.kind === "flag") return <Switch on={typeof v === "boolean" ? v : f.usual === true} set={(on) => set(on === (f.usual === true) ? undefined : on)} label={f.label}>{f.about}{f.usual ? " Default: on." : ""}</Switch>;
  return (
    <div class="field">
      <label for={id}>{f.label}</label>
      {f.kind === "choice" ? (
        <select id={id} aria-describedby={id + "-a"} value={String(v ?? "")} onChange={(e) => set(e.currentTarget.value)}>{(f.choices ?? []).map(([value, label]) => <option key={value} value={value}>{label}{value === "" ? " (default)" : ""}</option>)}</select>
      ) : f.kind === "list" || f.kind === "pairs" ? (
        <Lines id={id} f={f} v={v} set={set} />
      ) : (
        <input id={id} aria-describedby={id + "-a"} type={f.kind === "number" ? "number" : "text"} list={undefined} step="any" min={f.kind === "number" ? 0 : undefined} value={v === undefined || v === null ? "" : String(v)} placeholder={usual || f.place} spellcheck={false} autocomplete="off"
          onInput={(e) => { const t = e.currentTarget.value; set(f.kind === "number" ? (t === "" ? undefined : Number(t)) : t); }} />
      )}
      {about}
    </div>
  );
}

// Lines holds its own text, so that an unfinished line stays.
function Lines({ id, f, v, set }: { id: string; f: Field; v: Value; set: (v: Value) => void }) {
  const written = f.kind === "pairs" ? unpairs(v) : Array.isArray(v) ? v.join("\n") : "";
  const [text, setText] = useState(written);
  return <textarea id={id} aria-describedby={id + "-a"} class="mono" rows={Math.max(2, Math.min(10, text.split("\n").length))} value={text} placeholder={f.place} spellcheck={false}
    onInput={(e) => { setText(e.currentTarget.value); set(f.kind === "pairs" ? pairs(e.currentTarget.value) : lines(e.currentTarget.value)); }} />;
}
