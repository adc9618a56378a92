// A diff's lines, from the two texts that an agent gives.
import { structuredPatch } from "diff";

export interface DiffLine {
  sign: "+" | "-" | " " | "@";
  text: string;
  old: number; // its number before, 0 for none
  now: number;
}

export interface Diff {
  lines: DiffLine[];
  added: number;
  removed: number;
  whole: boolean; // false: too large to compare; the lines are the new text's beginning
}

const maxChars = 1_000_000;
const maxMillis = 400;

// compare gives the lines that differ with three of context.
export function compare(before: string, after: string): Diff {
  const patch = before.length + after.length > maxChars
    ? undefined
    : structuredPatch("a", "b", before, after, undefined, undefined, { context: 3, timeout: maxMillis });
  if (!patch) {
    const lines = after.slice(0, 20_000).split("\n").map((text, i) => ({ sign: "+" as const, text, old: 0, now: i + 1 }));
    return { lines, added: after.split("\n").length, removed: before === "" ? 0 : before.split("\n").length, whole: false };
  }
  const lines: DiffLine[] = [];
  let added = 0;
  let removed = 0;
  for (const hunk of patch.hunks) {
    if (lines.length > 0 || hunk.oldStart > 1) lines.push({ sign: "@", text: `line ${hunk.newStart}`, old: 0, now: 0 });
    let old = hunk.oldStart;
    let now = hunk.newStart;
    for (const line of hunk.lines) {
      const text = line.slice(1);
      if (line[0] === "+") {
        added++;
        lines.push({ sign: "+", text, old: 0, now: now++ });
      } else if (line[0] === "-") {
        removed++;
        lines.push({ sign: "-", text, old: old++, now: 0 });
      } else if (line[0] === " ") {
        lines.push({ sign: " ", text, old: old++, now: now++ });
      }
    }
  }
  return { lines, added, removed, whole: true };
}

// fold cuts long text to its first lines, and says how many are left out.
export function fold(text: string, max: number): { shown: string; hidden: number } {
  let at = -1;
  for (let i = 0; i < max; i++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return { shown: text, hidden: 0 };
  }
  let hidden = 0;
  for (let i = at; i >= 0 && i < text.length; i = text.indexOf("\n", i + 1)) hidden++;
  if (text.endsWith("\n")) hidden--;
  return hidden <= 0 ? { shown: text, hidden: 0 } : { shown: text.slice(0, at), hidden };
}
