// The browser of a session: live where the run has one that can be watched, else the last picture of it.
import { useRef, useState } from "preact/hooks";
import type { Session } from "../lib/types.ts";
import type { Followed } from "../session.ts";
import { agents } from "../agents.ts";
import { watchable } from "../model/display.ts";
import type { Picture } from "../model/pictures.ts";
import { runs } from "../state.ts";
import { Empty } from "../ui/basics.tsx";
import { Shot } from "../ui/artifact.tsx";
import { shotsOf } from "../ui/tool.tsx";
import { Ended, Live, NotLive } from "./watch.tsx";

const words: Record<string, string> = {
  wayland: "Its windows are on your own screen.",
  headless: "It has no windows; what the agent saw last stands here.",
};

// Browser shows that of s.
export function Browser({ s, followed }: { s: Session; followed: Followed }) {
  followed.version.value;
  const [which, setWhich] = useState<"browser" | "display" | "">("");
  const r = s.run ? runs.value.get(s.run) : undefined;
  const can = watchable(r);
  const what = can.find((w) => w === which) ?? can[0];
  const last = lastPicture(followed);
  const had = useRef<typeof what>(undefined);
  if (what) had.current = what;
  return (
    <>
      {can.length > 1 ? (
        <p class="row" role="group" aria-label="what is shown">
          {can.map((w) => <button key={w} class="small" aria-pressed={w === what} onClick={() => setWhich(w)}>{w === "browser" ? "Guarded browser" : "The sandbox’s screen"}</button>)}
        </p>
      ) : null}
      {r && what ? <Live key={`${r.id} ${what}`} run={r.id} agent={s.agent} what={what} news={followed.version.value} hands={what === "browser"} /> : null}
      {!s.run && had.current ? <Ended what={had.current} /> : null}
      {r?.browser && words[r.browser] && !what ? <p class="dim">{words[r.browser]}</p> : null}
      {last ? <figure class="last"><Shot src={last.src} alt="what the agent saw last" type={last.type} bytes={last.bytes} /><figcaption class="dim">what the agent saw last</figcaption></figure> : null}
      {r && !what && r.browser !== "wayland" && r.display !== "wayland" ? <NotLive agent={s.agent} file={agents.value.some((a) => a.name === s.agent && a.file)} /> : null}
      {!r && !last && !had.current ? <Empty title="Nothing to see yet"><p>When {s.agent} opens a page in its browser, it can be watched here.</p></Empty> : null}
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
