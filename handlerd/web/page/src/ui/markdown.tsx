// An agent's Markdown as elements. marked only splits it into tokens; each becomes an element here, so that no text of an
// agent's is ever read as HTML, and while it streams in what stands there already stays the same element.
import { Lexer, type Token, type Tokens } from "marked";
import type { ComponentChildren, VNode } from "preact";
import { memo } from "preact/compat";
import { useMemo } from "preact/hooks";
import { Code } from "./code.tsx";
import { artifactID, artifactURL } from "../model/pictures.ts";

const maxDepth = 24;

// safeLink gives an address that may be followed, "" for all others.
export function safeLink(href: string): string {
  try {
    const u = new URL(href);
    return u.protocol === "http:" || u.protocol === "https:" || u.protocol === "mailto:" ? u.href : "";
  } catch {
    return "";
  }
}

// Markdown shows text.
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const tokens = useMemo(() => {
    try {
      return new Lexer({ gfm: true, breaks: true }).lex(text);
    } catch {
      return [{ type: "text", raw: text, text } as Tokens.Text];
    }
  }, [text]);
  return <div class="md">{blocks(tokens, 0)}</div>;
});

function blocks(tokens: Token[], depth: number): ComponentChildren {
  if (depth > maxDepth) return tokens.map((t) => t.raw).join("");
  return tokens.map((t, i) => block(t, i, depth + 1));
}

function block(token: Token, key: number, depth: number): ComponentChildren {
  const t = token as Tokens.Generic;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const H = `h${Math.min(6, Number(t["depth"]) + 2)}` as "h3";
      return <H key={key}>{inlines(t.tokens ?? [], depth)}</H>;
    }
    case "paragraph":
      return <p key={key}>{inlines(t.tokens ?? [], depth)}</p>;
    case "code":
      return <Code key={key} text={(token as Tokens.Code).text} lang={(token as Tokens.Code).lang ?? ""} />;
    case "blockquote":
      return <blockquote key={key}>{blocks(t.tokens ?? [], depth)}</blockquote>;
    case "hr":
      return <hr key={key} />;
    case "list":
      return listOf(token as Tokens.List, key, depth);
    case "table":
      return tableOf(token as Tokens.Table, key, depth);
    case "html":
      return <p key={key} class="raw">{t.raw.trim()}</p>;
    case "text":
      return t.tokens ? <span key={key}>{inlines(t.tokens, depth)}</span> : <span key={key}>{text(t)}</span>;
    default:
      return <p key={key}>{t.raw}</p>;
  }
}

function listOf(t: Tokens.List, key: number, depth: number): VNode {
  const items = t.items.map((item, i) => (
    <li key={i} class={item.task ? "task" : undefined}>
      {item.task ? <input type="checkbox" checked={item.checked === true} disabled aria-label={item.checked ? "done" : "open"} /> : null}
      {blocks(item.tokens.filter((x) => x.type !== "checkbox"), depth)}
    </li>
  ));
  return t.ordered ? <ol key={key} start={Number(t.start) || 1}>{items}</ol> : <ul key={key}>{items}</ul>;
}

function tableOf(t: Tokens.Table, key: number, depth: number): VNode {
  const cell = (c: Tokens.TableCell, i: number, H: "th" | "td") => (
    <H key={i} class={c.align ? `to-${c.align}` : undefined}>{inlines(c.tokens, depth)}</H>
  );
  return (
    <div key={key} class="table" tabIndex={0} role="region" aria-label="table">
      <table>
        <thead><tr>{t.header.map((c, i) => cell(c, i, "th"))}</tr></thead>
        <tbody>{t.rows.map((r, i) => <tr key={i}>{r.map((c, j) => cell(c, j, "td"))}</tr>)}</tbody>
      </table>
    </div>
  );
}

function inlines(tokens: Token[], depth: number): ComponentChildren {
  if (depth > maxDepth) return tokens.map((t) => t.raw).join("");
  return tokens.map((t, i) => inline(t, i, depth + 1));
}

function inline(token: Token, key: number, depth: number): ComponentChildren {
  const t = token as Tokens.Generic;
  switch (token.type) {
    case "strong":
      return <strong key={key}>{inlines(t.tokens ?? [], depth)}</strong>;
    case "em":
      return <em key={key}>{inlines(t.tokens ?? [], depth)}</em>;
    case "del":
      return <del key={key}>{inlines(t.tokens ?? [], depth)}</del>;
    case "codespan":
      return <code key={key}>{(token as Tokens.Codespan).text}</code>;
    case "br":
      return <br key={key} />;
    case "link":
      return link(token as Tokens.Link, key, depth);
    case "image":
      return image(token as Tokens.Image, key);
    case "text":
    case "escape":
      return t.tokens ? <span key={key}>{inlines(t.tokens, depth)}</span> : text(t);
    default:
      return t.raw; // HTML among it: shown as the text that it is
  }
}

// text gives a token's words; marked leaves the entities of HTML to whoever shows them.
function text(t: Tokens.Generic): string {
  const s = String(t["text"] ?? t.raw);
  return s.includes("&") ? s.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name: string) => entities[name] ?? "") : s;
}
const entities: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", nbsp: "\u00a0" };

// link says where it leads where its text says something else.
function link(t: Tokens.Link, key: number, depth: number): VNode {
  const href = safeLink(t.href);
  if (href === "") return <span key={key} class="raw" title="this address is not followed">{inlines(t.tokens, depth)} ({t.href})</span>;
  return <a key={key} href={href} title={href} target="_blank" rel="noopener noreferrer nofollow">{inlines(t.tokens, depth)}</a>;
}

// image never loads from elsewhere: a picture's address can carry out what the agent knows.
function image(t: Tokens.Image, key: number): VNode {
  const id = artifactID(t.href);
  if (id) return <img key={key} class="shot" src={artifactURL(id)} alt={t.text} loading="lazy" />;
  return <span key={key} class="raw" title="pictures from other hosts are not loaded">[picture: {t.text || "without a name"} {t.href.slice(0, 200)}]</span>;
}
