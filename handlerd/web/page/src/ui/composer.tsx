// Where the person writes. What is typed is kept until it is sent, over reloads too; pictures and files come by paste,
// drop or button, within bounds that are said before anything is read.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Command, ContentBlock, Session } from "../lib/types.ts";
import { attach, bounds, blocksOf, check, type Attachment } from "../model/attach.ts";
import { bytes } from "../model/words.ts";
import { Failure, Icon } from "./basics.tsx";

const draftKey = (id: string) => `draft:${id}`;

// drafts are kept in the browser, which may refuse to.
function keep(id: string, text: string): void {
  try {
    if (text === "") localStorage.removeItem(draftKey(id));
    else localStorage.setItem(draftKey(id), text.slice(0, bounds.text));
  } catch {
    // full or forbidden: the text stays in the page
  }
}

function kept(id: string): string {
  try {
    return localStorage.getItem(draftKey(id)) ?? "";
  } catch {
    return "";
  }
}

const held = new Map<string, Attachment[]>(); // of each session, while the page is open

export interface ComposerProps {
  session: Session;
  send: (content: ContentBlock[]) => Promise<void>;
  stop: () => Promise<void>;
  working: boolean;
  why: string; // why nothing can be sent, "" where it can
}

// Composer writes to session.
export function Composer({ session, send, stop, working, why }: ComposerProps) {
  const [text, setText] = useState(() => kept(session.id));
  const [files, setFiles] = useState<Attachment[]>(() => held.get(session.id) ?? []);
  const [problem, setProblem] = useState("");
  const [err, setErr] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const edit = (t: string) => {
    setText(t);
    keep(session.id, t);
  };
  const put = (list: Attachment[]) => {
    setFiles(list);
    held.set(session.id, list);
  };

  useLayoutEffect(() => {
    const a = area.current!;
    a.style.height = "auto";
    a.style.height = Math.min(a.scrollHeight + 2, 260) + "px";
  }, [text]);

  const add = async (list: File[]) => {
    setProblem("");
    const current = held.get(session.id) ?? files;
    const wrong = check(list, current, session);
    if (wrong !== "") return setProblem(wrong);
    try {
      put([...current, ...(await Promise.all(list.map(attach)))]);
    } catch {
      setProblem("That file could not be read; is it still there?");
    }
  };

  const paste = (e: ClipboardEvent) => {
    const list = [...(e.clipboardData?.files ?? [])];
    if (list.length > 0) {
      e.preventDefault();
      return void add(list);
    }
    const pasted = e.clipboardData?.getData("text/plain") ?? "";
    if (pasted.length + text.length <= bounds.text) return;
    e.preventDefault();
    if (session.embeds && pasted.length <= bounds.file) return void add([new File([pasted], "pasted.txt", { type: "text/plain" })]);
    setProblem(`The clipboard holds ${bytes(pasted.length)} of text, and a message takes ${bytes(bounds.text)}. Save it as a file in ${session.cwd} and name it here.`);
  };

  const submit = async () => {
    if (busy || why !== "" || (text.trim() === "" && files.length === 0)) return;
    setBusy(true);
    setErr(null);
    try {
      await send(blocksOf(text, files));
      edit("");
      put([]);
    } catch (e) {
      setErr(e);
    } finally {
      setBusy(false);
      area.current?.focus();
    }
  };

  const suggest = slash(text, session.commands ?? []);
  const [pick, setPick] = useState(0);
  const choose = (c: Command) => {
    edit(`/${c.name} `);
    area.current?.focus();
  };
  const keys = (e: KeyboardEvent) => {
    if (suggest.length > 0) {
      if (e.key === "ArrowDown" || e.key === "ArrowUp") {
        e.preventDefault();
        return setPick((pick + (e.key === "ArrowDown" ? 1 : suggest.length - 1)) % suggest.length);
      }
      if (e.key === "Tab") {
        e.preventDefault();
        return choose(suggest[pick] ?? suggest[0]!);
      }
    }
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing && e.keyCode !== 229) {
      e.preventDefault();
      const c = suggest[pick] ?? suggest[0];
      if (c && text.trim() !== "/" + c.name) return choose(c);
      void submit();
    }
    if (e.key === "Escape") area.current?.blur();
  };
  useEffect(() => setPick(0), [suggest.length]);

  return (
    <div
      class={`composer${over ? " over" : ""}`}
      onDragOver={(e) => {
        e.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(e) => {
        e.preventDefault();
        setOver(false);
        void add([...(e.dataTransfer?.files ?? [])]);
      }}
    >
      {err ? <Failure err={err} title="It was not sent; what you wrote is still here" /> : null}
      {problem ? <p class="problem" role="alert">{problem} <button class="quiet small" onClick={() => setProblem("")}>Understood</button></p> : null}
      {suggest.length > 0 ? (
        <ul class="slash" role="listbox" aria-label="commands of the agent" id="slash">
          {suggest.map((c, i) => (
            <li key={c.name} role="option" aria-selected={i === pick} onMouseDown={(e) => { e.preventDefault(); choose(c); }}>
              <b>/{c.name}</b> <span>{c.input?.hint ? `<${c.input.hint}> ` : ""}{c.description}</span>
            </li>
          ))}
        </ul>
      ) : null}
      {files.length > 0 ? (
        <ul class="attached" aria-label="goes with the message">
          {files.map((f, i) => (
            <li key={i} class="chip">
              {f.preview ? <img src={f.preview} alt="" /> : <Icon name="file" />}
              <span>{f.name}</span><small>{bytes(f.bytes)}</small>
              <button class="quiet small" aria-label={`Leave out ${f.name}`} onClick={() => put(files.filter((x) => x !== f))}><Icon name="close" /></button>
            </li>
          ))}
        </ul>
      ) : null}
      <div class="write">
        <textarea
          ref={area}
          rows={1}
          value={text}
          placeholder={why || `Message ${session.agent}…`}
          aria-label={`Message to ${session.agent}`}
          aria-controls={suggest.length > 0 ? "slash" : undefined}
          onInput={(e) => edit(e.currentTarget.value)}
          onKeyDown={keys}
          onPaste={paste}
          maxLength={bounds.text}
        />
        <input ref={picker} type="file" multiple hidden aria-label="files for the message" onChange={(e) => { void add([...(e.currentTarget.files ?? [])]); e.currentTarget.value = ""; }} />
        <button class="quiet" aria-label="Add pictures or files" title="Add pictures or files; or paste, or drop them here" onClick={() => picker.current?.click()}><Icon name="clip" /></button>
        {working ? <button class="stop" onClick={() => void stop().catch(setErr)} title="Stop this turn"><Icon name="stop" /> Stop</button> : null}
        {!working || text.trim() !== "" ? <button class="primary send" aria-label="Send" title="Send (Enter; Shift Enter makes a new line)" disabled={busy || why !== "" || (text.trim() === "" && files.length === 0)} onClick={() => void submit()}><Icon name="send" /></button> : null}
      </div>
    </div>
  );
}

// slash gives the agent's commands that what is typed may become.
export function slash(text: string, commands: Command[]): Command[] {
  const m = /^\/([^\s]*)$/.exec(text);
  if (!m) return [];
  const typed = m[1]!.toLowerCase();
  return commands.filter((c) => c.name.toLowerCase().includes(typed))
    .sort((a, b) => Number(b.name.toLowerCase().startsWith(typed)) - Number(a.name.toLowerCase().startsWith(typed)) || a.name.localeCompare(b.name)).slice(0, 8);
}
