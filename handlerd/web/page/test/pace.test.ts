import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { pace } from "../src/model/pace.ts";

beforeEach(() => vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] }));
afterEach(() => vi.useRealTimers());

const request = new Uint8Array([3, 1, 0, 0, 0, 0, 0, 1, 0, 1]);

function rig() {
  const heard: string[] = [];
  const sent: unknown[] = [];
  let come = () => {};
  const ws = {
    send: (data: unknown) => void sent.push(data),
    addEventListener: (_: string, f: () => void) => void (come = f),
  } as unknown as WebSocket;
  const stop = pace(ws, { opened: () => {}, picture: () => heard.push("picture"), slow: (is) => heard.push(is ? "slow" : "fast"), closed: () => {} });
  return { heard, sent, ws, bytes: () => come(), stop };
}

describe("the pace of a display", () => {
  it("has its first picture when the second is asked for", () => {
    const r = rig();
    r.ws.send(new Uint8Array([2, 0, 0, 0]));
    r.ws.send(request);
    r.bytes();
    expect(r.heard).toEqual([]);
    r.ws.send(request);
    r.ws.send(request);
    expect(r.heard).toEqual(["picture"]);
    expect(r.sent).toHaveLength(4);
  });

  it("is not slow where nothing moves", () => {
    const r = rig();
    r.ws.send(request);
    r.bytes();
    r.ws.send(request);
    vi.advanceTimersByTime(60_000);
    expect(r.heard).toEqual(["picture"]);
  });

  it("is slow while a picture is on its way for long, until one comes in time", () => {
    const r = rig();
    r.ws.send(request);
    r.bytes();
    r.ws.send(request);
    r.bytes();
    vi.advanceTimersByTime(1_000);
    r.bytes();
    expect(r.heard).toEqual(["picture"]);
    vi.advanceTimersByTime(1_000);
    expect(r.heard).toEqual(["picture", "slow"]);
    r.ws.send(request);
    expect(r.heard).toEqual(["picture", "slow"]); // that one was
    vi.advanceTimersByTime(10_000);
    r.bytes();
    r.ws.send(request);
    expect(r.heard).toEqual(["picture", "slow", "fast"]);
  });

  it("says nothing after it was stopped", () => {
    const r = rig();
    r.ws.send(request);
    r.bytes();
    r.stop();
    vi.advanceTimersByTime(10_000);
    expect(r.heard).toEqual([]);
  });
});
