// Code in colours. The colouring comes in a chunk of its own, after the first paint.
import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { fold } from "../model/diff.ts";

const foldAfter = 60;
const colourUpTo = 60_000;

type Node = { type: string; value?: string; properties?: { className?: string[] }; children?: Node[] };
type Colours = (text: string, lang: string) => Node | null;

let colours: Colours | null = null;
let loading: Promise<void> | null = null;

function load(): Promise<void> {
  loading ??= import("./colours.ts").then((m) => {
    colours = m.colour;
  });
  return loading;
}

// useColours gives the colouring once it is there.
export function useColours(wanted: boolean): Colours | null {
  const [, again] = useState(0);
  useEffect(() => {
    if (wanted && !colours) load().then(() => again((n) => n + 1), () => {});
  }, [wanted]);
  return wanted ? colours : null;
}

export function tree(node: Node, key = 0): ComponentChildren {
  if (node.type === "text") return node.value;
  const children = node.children?.map((c, i) => tree(c, i));
  if (node.type !== "element") return children;
  return <span key={key} class={node.properties?.className?.join(" ")}>{children}</span>;
}

// Code shows a block, folded where it is long, with a button that copies all of it.
export function Code({ text, lang }: { text: string; lang: string }) {
  const [open, setOpen] = useState(false);
  const cut = open ? { shown: text, hidden: 0 } : fold(text, foldAfter);
  const name = /^[A-Za-z0-9+#._-]{1,24}/.exec(lang)?.[0] ?? "";
  const paint = useColours(name !== "" && cut.shown.length < colourUpTo);
  const painted = paint?.(cut.shown, name);
  return (
    <figure class="code">
      <figcaption>
        <span>{name || "text"}</span>
        <Copy text={text} />
      </figcaption>
      <pre tabIndex={0}><code>{painted ? tree(painted) : cut.shown}</code></pre>
      {cut.hidden > 0 ? <button class="fold" onClick={() => setOpen(true)}>{cut.hidden.toLocaleString("en")} more lines</button> : null}
    </figure>
  );
}

// Copy is a button that puts text on the clipboard and says so.
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState("");
  useEffect(() => {
    if (done === "") return;
    const t = setTimeout(() => setDone(""), 1_500);
    return () => clearTimeout(t);
  }, [done]);
  const copy = () => {
    navigator.clipboard.writeText(text).then(() => setDone("Copied"), () => setDone("The browser refused"));
  };
  return <button class="quiet small" onClick={copy} aria-live="polite">{done || label}</button>;
}
