// A tool call: one line until it is opened. Pictures stand as thumbnails below the line, whatever shape they came in.
import { memo } from "preact/compat";
import { useMemo, useState } from "preact/hooks";
import { callTitle, outputText, type ToolCall, type ToolContent } from "../model/conversation.ts";
import { compare, fold } from "../model/diff.ts";
import { artifactURL } from "../model/pictures.ts";
import { bytes, lasting } from "../model/words.ts";
import { Code, Copy } from "./code.tsx";
import { Icon } from "./basics.tsx";
import { ArtifactChip, isPicture, Shot } from "./artifact.tsx";

const foldOutput = 40;
const foldDiff = 80;

const marks: Record<string, { sign: string; word: string }> = {
  completed: { sign: "✓", word: "done" },
  failed: { sign: "✗", word: "failed" },
  in_progress: { sign: "…", word: "running" },
  pending: { sign: "…", word: "waiting" },
  stopped: { sign: "–", word: "stopped" },
};

// subject gives the one thing of a call's input that tells most.
export function subject(call: ToolCall): string {
  const i = call.input;
  if (typeof i !== "object" || i === null) return "";
  const o = i as Record<string, unknown>;
  for (const key of ["command", "url", "file_path", "path", "pattern", "query", "element", "text"]) {
    const v = o[key];
    const s = Array.isArray(v) ? v.filter((x) => typeof x === "string").join(" ") : v;
    if (typeof s === "string" && s !== "") {
      const line = s.split("\n", 1)[0]!.slice(0, 160);
      return call.title.includes(line) ? "" : line;
    }
  }
  return "";
}

// Tool shows a call.
export const Tool = memo(function Tool({ call }: { call: ToolCall }) {
  const [open, setOpen] = useState(false);
  // Many agents call a tool pending until it is done: it waits only where its question is open.
  const mark = call.status === "pending" && !call.asked ? { sign: "…", word: "under way" } : marks[call.status] ?? marks["pending"]!;
  const millis = Date.parse(call.ended) - Date.parse(call.began);
  const took = call.ended === "" || call.status === "stopped" || !(millis >= 50) ? "" : lasting(millis);
  const diffs = call.contents.filter((c) => c.type === "diff");
  const has = call.artifacts.filter((a) => !isPicture(a.type));
  const shots = shotsOf(call);
  return (
    <div class={`tool ${call.status}`}>
      <button class="line" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={open ? "down" : "right"} />
        <span class="what">{callTitle(call)}</span>
        <span class="about">{subject(call)}</span>
        {diffs.map((d, i) => <Counts key={i} d={d} />)}
        <span class="took">{took}</span>
        <span class={`mark ${call.status}`} role="img" aria-label={mark.word} title={mark.word}>{mark.sign}</span>
      </button>
      {shots.length > 0 ? <div class="shots">{shots.map((s) => <Shot key={s.key} src={s.src} alt={`picture of ${callTitle(call)}`} type={s.type} bytes={s.bytes} />)}</div> : null}
      {has.length > 0 ? <div class="chips">{has.map((a) => <ArtifactChip key={a.id} artifact={a} />)}</div> : null}
      {open ? <Inside call={call} /> : null}
    </div>
  );
});

// shotsOf gives a call's pictures, those that are kept as artifacts too once.
export function shotsOf(call: ToolCall) {
  const out = [...call.pictures];
  for (const a of call.artifacts) {
    if (isPicture(a.type) && !out.some((p) => p.key === a.id || p.bytes === a.bytes)) {
      out.push({ key: a.id, src: artifactURL(a.id), type: a.type, bytes: a.bytes });
    }
  }
  return out;
}

function Counts({ d }: { d: ToolContent }) {
  const c = useMemo(() => compare(d.oldText ?? "", d.text), [d]);
  return <span class="counts"><ins>+{c.added}</ins> <del>−{c.removed}</del></span>;
}

function Inside({ call }: { call: ToolCall }) {
  const output = outputText(call);
  const input = useMemo(() => inputText(call.input), [call.input]);
  const diffs = call.contents.filter((c) => c.type === "diff");
  return (
    <div class="inside">
      {call.name && call.name !== call.title ? <p class="dim">{call.name}</p> : null}
      {call.locations.length > 0 ? <p class="dim">{call.locations.map((l) => (l.line ? `${l.path}:${l.line}` : l.path)).join(", ")}</p> : null}
      {input.text ? <Code text={input.text} lang={input.lang} /> : null}
      {diffs.map((d, i) => <DiffView key={i} d={d} />)}
      {call.contents.filter((c) => c.type === "link").map((c, i) => <p key={i} class="dim">{c.text}</p>)}
      {output ? <Output text={output} /> : null}
      {!output && diffs.length === 0 && !input.text ? <p class="dim">it said nothing more</p> : null}
    </div>
  );
}

function inputText(input: unknown): { text: string; lang: string } {
  if (input === undefined || input === null) return { text: "", lang: "" };
  if (typeof input === "object") {
    const o = input as Record<string, unknown>;
    const command = Array.isArray(o["command"]) ? o["command"].join(" ") : o["command"];
    if (typeof command === "string") return { text: command, lang: "bash" };
    if (Object.keys(o).length === 0) return { text: "", lang: "" };
  }
  const text = typeof input === "string" ? input : JSON.stringify(input, null, 2);
  return { text: text.length > 200_000 ? text.slice(0, 200_000) + "\n… cut here" : text, lang: "json" };
}

// Output shows what a tool said: the first lines, the rest when asked for.
export function Output({ text }: { text: string }) {
  const [open, setOpen] = useState(false);
  const cut = open ? { shown: text, hidden: 0 } : fold(text, foldOutput);
  return (
    <div class="output">
      <pre tabIndex={0} aria-label="output">{cut.shown}</pre>
      <p class="row">
        {cut.hidden > 0 ? <button class="fold" onClick={() => setOpen(true)}>{cut.hidden.toLocaleString("en")} more lines ({bytes(text.length)})</button> : null}
        {open && text.length > 2_000 ? <button class="fold" onClick={() => setOpen(false)}>Fold</button> : null}
        <Copy text={text} />
      </p>
    </div>
  );
}

// DiffView shows what a file's change is.
export function DiffView({ d }: { d: ToolContent }) {
  const [open, setOpen] = useState(false);
  const diff = useMemo(() => compare(d.oldText ?? "", d.text), [d]);
  const shown = open ? diff.lines : diff.lines.slice(0, foldDiff);
  return (
    <figure class="diff">
      <figcaption><span>{d.path || "a file"}</span><span class="counts"><ins>+{diff.added}</ins> <del>−{diff.removed}</del></span></figcaption>
      {diff.whole ? null : <p class="dim">too large to compare: this is how the new text begins</p>}
      <div class="lines" tabIndex={0} role="region" aria-label={`changes of ${d.path || "a file"}`}>
        <table>
          <tbody>
            {shown.map((l, i) => (
              <tr key={i} class={l.sign === "+" ? "add" : l.sign === "-" ? "del" : l.sign === "@" ? "at" : undefined}>
                <td class="no">{l.now || l.old || ""}</td>
                <td class="sign">{l.sign === "@" ? "" : l.sign}</td>
                <td class="text">{l.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length < diff.lines.length ? <button class="fold" onClick={() => setOpen(true)}>{diff.lines.length - shown.length} more lines</button> : null}
    </figure>
  );
}
