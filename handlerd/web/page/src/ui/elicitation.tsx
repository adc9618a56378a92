// A form or an address that an agent asks its person for (ACP's elicitation/create).
import { signal, type Signal } from "@preact/signals";
import { useId } from "preact/hooks";
import type { Question } from "../model/conversation.ts";
import { content, fields, type Field, type Value, type Values } from "../model/schema.ts";
import { safeLink } from "./markdown.tsx";

// What is typed into the forms of questions, by their ids: a card may stand twice, and goes when it is scrolled away.
const typed = new Map<string, Signal<Values>>();
const keptForms = 50;

function typedIn(id: string): Signal<Values> {
  let values = typed.get(id);
  if (!values) {
    values = signal<Values>(new Map());
    typed.set(id, values);
    if (typed.size > keptForms) typed.delete(typed.keys().next().value!);
  }
  return values;
}

// Elicitation is the card's inside.
export function Elicitation({ q, agent, busy, send }: { q: Question; agent: string; busy: boolean; send: (body: object) => void }) {
  const typed = typedIn(q.id);
  const values = typed.value;
  const of = useId();
  const fs = fields(q.params["requestedSchema"]);
  // The tool call that it is about, where the agent names one: Handler puts it in.
  const call = ((q.params["_meta"] as Record<string, unknown> | undefined)?.["handler/toolCall"] ?? {}) as { title?: unknown };
  const about = typeof call.title === "string" ? call.title : "";
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
      {about ? <p class="dim">about {about}</p> : null}
      {url ? (
        <div class="visit">
          <p>It wants you to open this address. Look at its host before you do, and never give it a password that you did not mean to:</p>
          <pre class="about">{url}</pre>
          {href ? <a class="button" href={href} target="_blank" rel="noopener noreferrer">Open in a new tab</a> : <p>This address cannot be opened.</p>}
        </div>
      ) : null}
      {fs.map((f, i) => <Input key={f.name} id={`${of}-${i}`} f={f} value={values.get(f.name) ?? f.initial} set={(v) => { typed.value = new Map(typed.value).set(f.name, v); }} />)}
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

function Input({ id, f, value, set }: { id: string; f: Field; value: Value; set: (v: Value) => void }) {
  const about = f.description ? <small id={id + "-d"}>{f.description}</small> : null;
  const described = f.description ? id + "-d" : undefined;
  if (f.type === "boolean") {
    return <label class="field check"><input type="checkbox" checked={value === true} onChange={(e) => set(e.currentTarget.checked)} /> <span>{f.title}</span>{about}</label>;
  }
  if (f.type === "array") return <Several id={id} f={f} chosen={Array.isArray(value) ? value : []} set={set} />;
  return (
    <div class="field">
      <label for={id}>{f.title}{f.required ? "" : " (may stay empty)"}</label>
      {f.choices.length > 0 ? (
        <select id={id} aria-describedby={described} required={f.required} value={String(value)} onChange={(e) => set(e.currentTarget.value)}>
          <option value="">choose…</option>
          {f.choices.map((c) => <option key={c.value} value={c.value}>{c.about ? `${c.label}: ${c.about}` : c.label}</option>)}
        </select>
      ) : (
        <input id={id} aria-describedby={described} required={f.required} {...bounds(f)} step={f.type === "integer" ? 1 : "any"} value={String(value)} onInput={(e) => set(e.currentTarget.value)} autocomplete="off" />
      )}
      {about}
    </div>
  );
}

// Several is a field of which some of its choices can be ticked.
function Several({ id, f, chosen, set }: { id: string; f: Field; chosen: readonly string[]; set: (v: Value) => void }) {
  const full = f.most !== undefined && f.most > 0 && chosen.length >= f.most;
  return (
    <fieldset class="field several">
      <legend>{f.title}{f.required ? "" : " (may stay empty)"}</legend>
      {f.description ? <small>{f.description}</small> : null}
      {f.choices.map((c, i) => {
        const on = chosen.includes(c.value);
        return (
          <label key={c.value} class="check">
            <input id={`${id}-${i}`} type="checkbox" checked={on} disabled={full && !on} onChange={() => set(f.choices.map((o) => o.value).filter((v) => (v === c.value ? !on : chosen.includes(v))))} />
            <span>{c.label}</span>
            {c.about ? <small>{c.about}</small> : null}
          </label>
        );
      })}
    </fieldset>
  );
}

// bounds are what the browser holds a field to before it is sent; the daemon does the same.
function bounds(f: Field) {
  return f.type === "string" ? ({ type: "text", minLength: f.least, maxLength: f.most } as const) : ({ type: "number", min: f.least, max: f.most } as const);
}
