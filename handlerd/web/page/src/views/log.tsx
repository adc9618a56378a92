// The list of a conversation's items. Only what is near the view is drawn, so that thousands scroll smoothly; the view
// follows the end only while the person is at the end.
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { VList, type VListHandle } from "virtua";
import type { Session } from "../lib/types.ts";
import type { Item } from "../model/conversation.ts";
import type { Followed } from "../session.ts";
import { Icon } from "../ui/basics.tsx";
import { ItemView } from "../ui/items.tsx";

const near = 32; // pixels from the end that count as being there

// Log shows followed's items.
export function Log({ followed, s, working }: { followed: Followed; s: Session; working: boolean }) {
  const version = followed.version.value;
  const items = followed.conversation.items;
  const list = useRef<VListHandle>(null);
  const stick = useRef(true);
  const offset = useRef(0);
  const [away, setAway] = useState(false);

  const toEnd = useCallback(() => {
    const n = followed.conversation.items.length;
    if (n > 0) list.current?.scrollToIndex(n, { align: "end" });
  }, [followed]);

  useLayoutEffect(() => {
    if (stick.current) toEnd();
  }, [version, working, toEnd]);

  const sent = followed.sent.value;
  useLayoutEffect(() => {
    if (sent === 0) return;
    stick.current = true;
    setAway(false);
    toEnd();
  }, [sent, toEnd]);

  // Only a movement upwards leaves the end: what grows below it does not.
  const scrolled = (at: number) => {
    const l = list.current;
    if (!l) return;
    const rest = l.scrollSize - l.viewportSize - at;
    if (at < offset.current - 2 && rest > near) stick.current = false;
    else if (rest <= near) stick.current = true;
    offset.current = at;
    setAway(!stick.current);
  };
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const up = (e: WheelEvent) => {
      if (e.deltaY < 0) stick.current = false;
    };
    const b = box.current!;
    b.addEventListener("wheel", up, { passive: true });
    // Another width makes all of it higher or lower: who was at the end stays there.
    let width = b.clientWidth;
    const sized = new ResizeObserver(() => {
      if (stick.current && b.clientWidth !== width) requestAnimationFrame(toEnd);
      width = b.clientWidth;
    });
    sized.observe(b);
    return () => {
      b.removeEventListener("wheel", up);
      sized.disconnect();
    };
  }, [toEnd]);

  const last = items.length - 1;
  return (
    <div class="log" ref={box} role="region" aria-label="Conversation" aria-busy={working}>
      <VList ref={list as never /* virtua's types are React's */} className="scroller" data={[...items, tail]} onScroll={scrolled} tabIndex={0}>
        {(item: Item | typeof tail, i: number) => item.kind === "tail"
          ? <div key="tail" class="column tail">{working ? <p class="working" role="status"><i aria-hidden="true" /><i aria-hidden="true" /><i aria-hidden="true" /><span class="sr">{s.agent} is working</span></p> : null}</div>
          : <div key={item.key} class="column"><ItemView item={item} session={s.id} agent={s.agent} streaming={working && i === last} /></div>}
      </VList>
      {away ? (
        <button class="to-end" onClick={() => { stick.current = true; toEnd(); setAway(false); }}>
          <Icon name="down" /> Latest
        </button>
      ) : null}
    </div>
  );
}

const tail = { kind: "tail" } as const;
