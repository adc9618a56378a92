import { describe, expect, it } from "vitest";
import { Stream, type Source } from "../src/lib/stream.ts";

class Fake implements Source {
  onopen: ((ev: Event) => unknown) | null = null;
  onmessage: ((ev: MessageEvent<string>) => unknown) | null = null;
  onerror: ((ev: Event) => unknown) | null = null;
  closed = false;
  readonly url: string;
  constructor(url: string) {
    this.url = url;
  }
  close() {
    this.closed = true;
  }
  say(n: number) {
    this.onmessage?.({ data: String(n) } as MessageEvent<string>);
  }
  breaks() {
    this.onerror?.({} as Event);
  }
}

function rig(broken?: () => Promise<"retry" | "stop">) {
  const sources: Fake[] = [];
  const waits: { ms: number; then: () => void }[] = [];
  const states: boolean[] = [];
  const stream = new Stream({
    url: (after) => `/e?after=${after}`,
    take: Number,
    state: (live) => states.push(live),
    ...(broken ? { broken } : {}),
    open: (url) => {
      const f = new Fake(url);
      sources.push(f);
      return f;
    },
    wait: (ms, then) => {
      waits.push({ ms, then });
      return () => {};
    },
  });
  return { stream, sources, waits, states };
}

const settled = () => new Promise((r) => setImmediate(r));

describe("a stream", () => {
  it("goes on behind the last number after a break", async () => {
    const { sources, waits, states } = rig();
    sources[0]!.onopen?.({} as Event);
    sources[0]!.say(1);
    sources[0]!.say(7);
    sources[0]!.breaks();
    await settled();
    expect(sources[0]!.closed).toBe(true);
    waits[0]!.then();
    expect(sources[1]!.url).toBe("/e?after=7");
    expect(states).toEqual([true, false]);
  });

  it("takes nothing from a source that it left", async () => {
    const { stream, sources } = rig();
    sources[0]!.breaks();
    await settled();
    sources[0]!.say(9);
    expect(stream.last).toBe(0);
  });

  it("waits longer each time, up to a bound, and anew once it was open", async () => {
    const { sources, waits } = rig();
    for (let i = 0; i < 8; i++) {
      sources[sources.length - 1]!.breaks();
      await settled();
      waits[waits.length - 1]!.then();
    }
    expect(waits.map((w) => w.ms)).toEqual([250, 500, 1000, 2000, 4000, 5000, 5000, 5000]);
    sources[sources.length - 1]!.onopen?.({} as Event);
    sources[sources.length - 1]!.breaks();
    await settled();
    expect(waits[waits.length - 1]!.ms).toBe(250);
  });

  it("stops where the thing is gone, and when it is closed", async () => {
    const gone = rig(async () => "stop");
    gone.sources[0]!.breaks();
    await settled();
    expect(gone.waits).toHaveLength(0);
    const closed = rig();
    closed.stream.close();
    closed.sources[0]!.breaks();
    await settled();
    expect(closed.waits).toHaveLength(0);
    expect(closed.sources[0]!.closed).toBe(true);
  });
});
