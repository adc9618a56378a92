// The browser of a session: live where the run has one that can be watched, else the last picture of it.
import type { Session } from "../lib/types.ts";
import type { Followed } from "../session.ts";
import { runs } from "../state.ts";
import { Empty } from "../ui/basics.tsx";
import { Shot } from "../ui/artifact.tsx";
import { shotsOf } from "../ui/tool.tsx";
import type { Picture } from "../model/pictures.ts";

// Browser shows that of s.
export function Browser({ s, followed }: { s: Session; followed: Followed }) {
  followed.version.value;
  const r = s.run ? runs.value.get(s.run) : undefined;
  const last = lastPicture(followed);
  const words: Record<string, string> = {
    wayland: "Its windows are on your own screen.",
    headless: "It has no windows; what the agent saw last stands here.",
    guarded: "It is guarded by Handler and runs in a sandbox of its own.",
  };
  return (
    <>
      {r?.browser ? <p class="dim">{words[r.browser] ?? r.browser}</p> : null}
      {last ? <figure class="last"><Shot src={last.src} alt="what the agent saw last" type={last.type} bytes={last.bytes} /><figcaption class="dim">what the agent saw last</figcaption></figure> : null}
      {!last ? <Empty title="Nothing to see yet"><p>When {s.agent} opens a page in its browser, it can be watched here.</p></Empty> : null}
    </>
  );
}

function lastPicture(followed: Followed): Picture | null {
  const items = followed.conversation.items;
  for (let i = items.length - 1; i >= 0; i--) {
    const item = items[i]!;
    const shots = item.kind === "tool" ? shotsOf(item.call) : [];
    if (shots.length > 0) return shots[shots.length - 1]!;
  }
  return null;
}
