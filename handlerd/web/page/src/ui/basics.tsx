// The small parts that every view is made of. Dialogs, menus and switches are the browser's own elements: they bring
// their keyboard and their names for screen readers with them.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { sentence } from "../lib/api.ts";
import { ago } from "../model/words.ts";
import { now } from "../state.ts";
import { Copy } from "./code.tsx";

const paths = {
  plus: "M8 3v10M3 8h10",
  agent: "M3 13c0-3 2-5 5-5s5 2 5 5M8 8a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 8z",
  talk: "M2.5 3.5h11v7.5H7l-3 2.5V11H2.5z",
  bell: "M4 11V7.5a4 4 0 0 1 8 0V11l1 1H3zM6.8 13.6h2.4",
  net: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM2.2 8h11.6M8 2.2c-4 4-4 7.6 0 11.6 4-4 4-7.6 0-11.6z",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  doctor: "M8 3.2v9.6M3.2 8h9.6M2.5 2.5h11v11h-11z",
  box: "M2.5 5 8 2.2 13.5 5v6L8 13.8 2.5 11zM2.5 5 8 7.8 13.5 5M8 7.8v6",
  search: "M7 2.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4zM10.2 10.2l3.2 3.2",
  close: "M4 4l8 8M12 4l-8 8",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  panel: "M2.5 3h11v10h-11zM9.5 3v10",
  clip: "M12.5 7.2 7.7 12a2.8 2.8 0 0 1-4-4l5.2-5.1a1.9 1.9 0 0 1 2.7 2.7L6.5 10.6a.9.9 0 0 1-1.3-1.3l4.5-4.5",
  send: "M8 13V3.5M4 7.2 8 3.2l4 4",
  stop: "M4.5 4.5h7v7h-7z",
  down: "M4 6.2l4 4 4-4",
  right: "M6.2 4l4 4-4 4",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  check: "M3.2 8.4l3.2 3.2 6.4-7",
} as const;
export type IconName = keyof typeof paths;

// Icon is a drawing that says nothing by itself: a word stands beside it, or in the label of its button.
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}

// Failure stands where the thing was, says what happened and what to do.
export function Failure({ err, retry, title }: { err: unknown; retry?: () => void; title?: string }) {
  const { what, remedy } = sentence(err);
  return (
    <div class="failure" role="alert">
      {title ? <strong>{title}</strong> : null}
      <p>{what}</p>
      {remedy ? <Remedy text={remedy} /> : null}
      {retry ? <button onClick={retry}>Try again</button> : null}
    </div>
  );
}

// Remedy shows what to do; the command in it can be copied.
export function Remedy({ text }: { text: string }) {
  return <>{text.split(/ — (?=or\b)|\n/).map((t, i) => <Way key={i} text={t} />)}</>;
}

function Way({ text }: { text: string }) {
  const command = /(?:^|: )((?:sudo )?(?:handler|systemctl|apt|podman|make|export|loginctl|usermod)\b[^\n]*)$/.exec(text)?.[1];
  if (!command) return <p class="remedy">{text}</p>;
  const before = text.slice(0, text.length - command.length).replace(/:\s*$/, "");
  return (
    <p class="remedy">
      {before ? <span>{before}</span> : null}
      <span class="command"><code>{command}</code><Copy text={command} /></span>
    </p>
  );
}

// Empty teaches one command or one button.
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

// Skeleton is the shape of what comes.
export function Skeleton({ rows = 3 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="loading">
      {Array.from({ length: rows }, (_, i) => <i key={i} class={`w${i % 3}`} />)}
    </div>
  );
}

// Time is relative, and absolute on hover.
export function Time({ at }: { at: string }) {
  const t = new Date(at);
  return <time dateTime={at} title={Number.isNaN(t.getTime()) ? undefined : t.toLocaleString()}>{ago(at, now.value)}</time>;
}

// State says a session's or a run's state by shape and word.
export function State({ what }: { what: "working" | "asks" | "idle" | "ended" }) {
  const word = { working: "working", asks: "needs you", idle: "idle", ended: "ended" }[what];
  return <span class={`state ${what}`}><i aria-hidden="true" />{word}</span>;
}

// Dialog is modal, closes with Esc, and gives the focus back.
export function Dialog({ title, close, children, wide }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const d = ref.current!;
    const before = document.activeElement;
    d.showModal();
    return () => {
      d.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={wide ? "wide" : undefined}
      aria-label={title}
      onCancel={(e) => {
        e.preventDefault();
        close();
      }}
      onClick={(e) => {
        if (e.target === ref.current) close();
      }}
    >
      <div class="dialog">
        <header><h2>{title}</h2><button class="quiet" aria-label="Close" onClick={close}><Icon name="close" /></button></header>
        {children}
      </div>
    </dialog>
  );
}

// Menu is a button that opens a list of actions.
export function Menu({ label, children }: { label: string; children: ComponentChildren }) {
  const ref = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const away = (e: Event) => {
      const d = ref.current;
      if (d?.open && !(e.target instanceof Node && d.contains(e.target))) d.open = false;
    };
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, []);
  const keys = (e: KeyboardEvent) => {
    if (e.key !== "Escape" || !ref.current?.open) return;
    e.stopPropagation();
    ref.current.open = false;
    ref.current.querySelector("summary")?.focus();
  };
  return (
    <details ref={ref} class="menu" onKeyDown={keys} onClick={(e) => {
      if (e.target instanceof HTMLElement && e.target.closest("button")) ref.current!.open = false;
    }}>
      <summary class="button quiet" aria-label={label} title={label}><Icon name="more" /></summary>
      <div class="menu-list">{children}</div>
    </details>
  );
}

// Switch is a checkbox that looks like one that acts at once.
export function Switch({ on, set, label, children, disabled }: { on: boolean; set: (on: boolean) => void; label: string; children?: ComponentChildren; disabled?: boolean }) {
  return (
    <label class="switch">
      <input type="checkbox" role="switch" checked={on} disabled={disabled} onChange={(e) => set(e.currentTarget.checked)} />
      <span><b>{label}</b>{children ? <small>{children}</small> : null}</span>
    </label>
  );
}
