// A form or an address that an agent asks its person for (ACP's elicitation/create).
import { useState } from "preact/hooks";
import type { Question } from "../model/conversation.ts";
import { safeLink } from "./markdown.tsx";

type Field = {
  name: string;
  type: string;
  title: string;
  description: string;
  choices: { value: string; label: string }[];
  required: boolean;
  initial: string | boolean;
};

// fields reads the flat schemas that the protocol allows; what it does not know is a line of text.
export function fields(schema: unknown): Field[] {
  const s = (schema ?? {}) as { properties?: Record<string, Record<string, unknown>>; required?: string[] };
  return Object.entries(s.properties ?? {}).slice(0, 40).map(([name, p]) => {
    const names = (p["enumNames"] as string[] | undefined) ?? [];
    const listed = ((p["enum"] as unknown[] | undefined) ?? []).map((v, i) => ({ value: String(v), label: names[i] ?? String(v) }));
    const oneOf = ((p["oneOf"] as { const?: unknown; title?: string }[] | undefined) ?? []).map((o) => ({ value: String(o.const), label: o.title ?? String(o.const) }));
    const type = String(p["type"] ?? "string");
    const dflt = p["default"];
    return {
      name, type,
      title: String(p["title"] ?? name),
      description: String(p["description"] ?? ""),
      choices: listed.length > 0 ? listed : oneOf,
      required: s.required?.includes(name) ?? false,
      initial: type === "boolean" ? dflt === true : dflt === undefined ? "" : String(dflt),
    };
  });
}

// content gives the answer as the schema's types want it.
export function content(fs: Field[], values: Record<string, string | boolean>): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const f of fs) {
    const v = values[f.name] ?? f.initial;
    if (f.type === "boolean") out[f.name] = v === true;
    else if (v === "" && !f.required) continue;
    else if (f.type === "number" || f.type === "integer") out[f.name] = Number(v);
    else out[f.name] = v;
  }
  return out;
}

// Elicitation is the card's inside.
export function Elicitation({ q, agent, busy, send }: { q: Question; agent: string; busy: boolean; send: (body: object) => void }) {
  const [values, setValues] = useState<Record<string, string | boolean>>({});
  const fs = fields(q.params["requestedSchema"]);
  const url = q.params["mode"] === "url" ? String(q.params["url"] ?? "") : "";
  const href = url ? safeLink(url) : "";
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        send({ content: content(fs, values) });
      }}
    >
      <header><span class="who">{agent} asks</span></header>
      <h3>{String(q.params["message"] ?? "for an answer")}</h3>
      {url ? (
        <div class="visit">
          <p>It wants you to open this address. Look at its host before you do, and never give it a password that you did not mean to:</p>
          <pre class="about">{url}</pre>
          {href ? <a class="button" href={href} target="_blank" rel="noopener noreferrer">Open in a new tab</a> : <p>This address cannot be opened.</p>}
        </div>
      ) : null}
      {fs.map((f) => <Input key={f.name} f={f} value={values[f.name] ?? f.initial} set={(v) => setValues({ ...values, [f.name]: v })} />)}
      {q.ours ? (
        <div class="answers">
          <button class="primary" type="submit" disabled={busy}>{url ? "I have opened it" : "Answer"}</button>
          <button type="button" data-refuse disabled={busy} onClick={() => send({ option: "decline" })}>Decline <kbd>R</kbd></button>
          <button type="button" class="quiet" disabled={busy} onClick={() => send({ cancel: true })}>No answer</button>
        </div>
      ) : <p class="dim">It is asked where the session was started, and answered there.</p>}
    </form>
  );
}

function Input({ f, value, set }: { f: Field; value: string | boolean; set: (v: string | boolean) => void }) {
  const id = `e-${f.name.replace(/[^A-Za-z0-9_-]/g, "")}`;
  const about = f.description ? <small id={id + "-d"}>{f.description}</small> : null;
  const described = f.description ? id + "-d" : undefined;
  if (f.type === "boolean") {
    return <label class="field check"><input type="checkbox" checked={value === true} onChange={(e) => set(e.currentTarget.checked)} /> <span>{f.title}</span>{about}</label>;
  }
  return (
    <div class="field">
      <label for={id}>{f.title}{f.required ? "" : " (may stay empty)"}</label>
      {f.choices.length > 0 ? (
        <select id={id} aria-describedby={described} required={f.required} value={String(value)} onChange={(e) => set(e.currentTarget.value)}>
          <option value="">choose…</option>
          {f.choices.map((c) => <option key={c.value} value={c.value}>{c.label}</option>)}
        </select>
      ) : (
        <input id={id} aria-describedby={described} required={f.required} type={f.type === "number" || f.type === "integer" ? "number" : "text"} step={f.type === "integer" ? 1 : "any"} list={undefined} value={String(value)} onInput={(e) => set(e.currentTarget.value)} autocomplete="off" />
      )}
      {about}
    </div>
  );
}
