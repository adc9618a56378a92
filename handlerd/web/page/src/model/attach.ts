// What goes with a message: pictures as pictures, text as embedded files, within bounds.
import type { ContentBlock } from "../lib/types.ts";
import { bytes } from "./words.ts";

export interface Attachment {
  name: string;
  bytes: number;
  preview: string; // a data URL of a picture
  block: ContentBlock;
}

// The bounds of one message, in bytes of the file, and how many.
export const bounds = {
  text: 512 * 1024,
  picture: 5 * 1024 * 1024,
  file: 512 * 1024,
  all: 10 * 1024 * 1024,
  count: 10,
};

interface Takes {
  agent: string;
  images: boolean;
  embeds: boolean;
  cwd: string;
}

const picture = (type: string) => /^image\/(png|jpeg|gif|webp)$/.test(type);

// check says why files cannot come along, in a sentence; "" where they can. Nothing of them is read for that.
export function check(files: { name: string; size: number; type: string }[], have: Attachment[], to: Takes): string {
  if (files.length + have.length > bounds.count) return `A message takes ${bounds.count} pictures and files; these would be ${files.length + have.length}.`;
  let sum = have.reduce((n, a) => n + a.bytes, 0);
  for (const f of files) {
    const named = `“${f.name}”`;
    const instead = `Save it in ${to.cwd} and name it in the message: the agent reads it there.`;
    if (f.size === 0) return `${named} is empty, or a folder. ${instead}`;
    if (picture(f.type)) {
      if (!to.images) return `${to.agent} takes no pictures. ${instead}`;
      if (f.size > bounds.picture) return `${named} is ${bytes(f.size)}, and a picture may have ${bytes(bounds.picture)}. ${instead}`;
    } else {
      if (!to.embeds) return `${to.agent} takes no files in a message. ${instead}`;
      if (f.size > bounds.file) return `${named} is ${bytes(f.size)}, and a file in a message may have ${bytes(bounds.file)}. ${instead}`;
    }
    sum += f.size;
  }
  if (sum > bounds.all) return `All of it together is ${bytes(sum)}, and a message takes ${bytes(bounds.all)}.`;
  return "";
}

// attach reads one file.
export async function attach(f: File): Promise<Attachment> {
  const raw = new Uint8Array(await f.arrayBuffer());
  const name = f.name || "pasted";
  const uri = "file:///" + encodeURIComponent(name);
  if (picture(f.type)) {
    const data = base64(raw);
    return { name, bytes: raw.length, preview: `data:${f.type};base64,${data}`, block: { type: "image", data, mimeType: f.type } };
  }
  const text = textOf(raw);
  const mimeType = f.type || (text === null ? "application/octet-stream" : "text/plain");
  return {
    name, bytes: raw.length, preview: "",
    block: { type: "resource", resource: text === null ? { uri, mimeType, blob: base64(raw) } : { uri, mimeType, text } },
  };
}

// textOf gives bytes as text, null where they are none.
export function textOf(raw: Uint8Array): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(raw);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

// base64 encodes bytes, in pieces that fit the stack.
export function base64(raw: Uint8Array): string {
  let s = "";
  for (let i = 0; i < raw.length; i += 0x8000) s += String.fromCharCode(...raw.subarray(i, i + 0x8000));
  return btoa(s);
}

// blocksOf gives the message's content.
export function blocksOf(text: string, files: Attachment[]): ContentBlock[] {
  const out: ContentBlock[] = [];
  if (text.trim() !== "") out.push({ type: "text", text: text.trimEnd() });
  for (const f of files) out.push(f.block);
  return out;
}
