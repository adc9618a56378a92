import { describe, expect, it } from "vitest";
import { kindAway, Problem } from "../src/lib/api.ts";
import type { ViewTicket } from "../src/lib/types.ts";
import { Watch, type Ear, type Watched } from "../src/model/watch.ts";

type Answer = Problem | "ticket";

// A rig is a daemon and a display that do what a test says. Timers fire when the test says so.
function rig(answers: Answer[], once = false) {
  const states: Watched[] = [];
  const ears: Ear[] = [];
  const closed: number[] = [];
  const tickets: string[] = [];
  let waits: { ms: number; then: () => void }[] = [];
  const asked = { n: 0 };
  const watch = new Watch({
    once,
    ticket: async () => {
      const a = answers[Math.min(asked.n, answers.length - 1)]!;
      asked.n++;
      if (a instanceof Problem) throw a;
      return { ticket: `t${asked.n}`, path: "/v1/view", expires: "", viewOnly: true, says: "" } satisfies ViewTicket;
    },
    open: (t, ear) => {
      const n = ears.push(ear) - 1;
      tickets.push(t.ticket);
      return { close: () => void closed.push(n) };
    },
    tell: (s) => states.push(s),
    wait: (ms, then) => {
      const w = { ms, then };
      waits.push(w);
      return () => (waits = waits.filter((x) => x !== w));
    },
  });
  const settle = async () => {
    for (let i = 0; i < 8; i++) await Promise.resolve();
  };
  const fire = async (least = 0) => {
    const w = waits.find((x) => x.ms >= least);
    waits = waits.filter((x) => x !== w);
    w?.then();
    await settle();
    return w?.ms;
  };
  const last = () => states[states.length - 1]!;
  return { watch, states, ears, closed, tickets, asked, waits: () => waits.map((w) => w.ms), fire, settle, last };
}

const problem = (kind: string, message = kind) => new Problem({ kind, message });

describe("a watch", () => {
  it("opens with a ticket and is live with the first picture", async () => {
    const r = rig(["ticket"]);
    await r.settle();
    expect(r.states).toEqual([{ is: "opening", slow: false }]);
    r.ears[0]!.opened();
    expect(r.last().is).toBe("opening");
    r.ears[0]!.picture();
    expect(r.last()).toEqual({ is: "live", slow: false });
    r.ears[0]!.slow(true);
    expect(r.last()).toEqual({ is: "live", slow: true });
  });

  it("says so when it takes long to open, and not once it is live", async () => {
    const r = rig(["ticket"]);
    await r.settle();
    await r.fire(4_000);
    expect(r.last()).toEqual({ is: "opening", slow: true });
    const s = rig(["ticket"]);
    await s.settle();
    s.ears[0]!.opened();
    s.ears[0]!.picture();
    await s.fire(4_000);
    expect(s.last()).toEqual({ is: "live", slow: false });
  });

  it("asks once for another ticket where one is not taken, and then says so", async () => {
    const r = rig(["ticket"]);
    await r.settle();
    r.ears[0]!.closed(1006, "");
    await r.settle();
    expect(r.tickets).toEqual(["t1", "t2"]);
    expect(r.last()).toEqual({ is: "opening", slow: false });
    r.ears[1]!.closed(1006, "");
    await r.settle();
    expect(r.asked.n).toBe(2);
    expect(r.last()).toMatchObject({ is: "refused", problem: { kind: "refused" } });
    r.watch.again();
    await r.settle();
    expect(r.tickets).toEqual(["t1", "t2", "t3"]);
  });

  it("has its second chance again after it was live", async () => {
    const r = rig(["ticket"]);
    await r.settle();
    r.ears[0]!.closed(1006, "");
    await r.settle();
    r.ears[1]!.opened();
    r.ears[1]!.picture();
    r.ears[1]!.closed(1006, "");
    await r.fire();
    r.ears[2]!.closed(1006, "");
    await r.settle();
    expect(r.tickets).toHaveLength(4);
    expect(r.last().is).toBe("opening");
  });

  it("comes back when the daemon is started anew, waiting longer each time", async () => {
    const away = problem(kindAway);
    const r = rig(["ticket", away, away, "ticket"]);
    await r.settle();
    r.ears[0]!.opened();
    r.ears[0]!.picture();
    r.ears[0]!.closed(1001, "handlerd is ending");
    expect(await r.fire()).toBe(250);
    expect(r.last()).toEqual({ is: "lost" });
    expect(await r.fire()).toBe(500);
    expect(r.last()).toEqual({ is: "lost" });
    expect(await r.fire()).toBe(1_000);
    r.ears[1]!.opened();
    r.ears[1]!.picture();
    expect(r.last().is).toBe("live");
  });

  it("ends with the run", async () => {
    const r = rig(["ticket", problem("not-found")]);
    await r.settle();
    r.ears[0]!.opened();
    r.ears[0]!.picture();
    r.ears[0]!.closed(1001, "the run has ended");
    await r.fire();
    expect(r.last()).toEqual({ is: "ended" });
    expect(r.waits()).toEqual([]);
  });

  it.each([
    ["the daemon's refusal", "refused"],
    ["a login that has ended", "login"],
  ])("stops at %s", async (_, kind) => {
    const r = rig([problem(kind, "because")]);
    await r.settle();
    expect(r.last()).toMatchObject({ is: "refused", problem: { message: "because" } });
    expect(r.waits()).toEqual([]);
  });

  it("stops where the display says what no view knows, and where it never came up", async () => {
    const r = rig(["ticket"]);
    await r.settle();
    r.ears[0]!.opened();
    r.ears[0]!.picture();
    r.ears[0]!.closed(1008, "the display sent a message of kind 9");
    expect(r.last()).toMatchObject({ is: "failed", problem: { message: "the display sent a message of kind 9" } });
    const s = rig(["ticket"]);
    await s.settle();
    s.ears[0]!.opened();
    s.ears[0]!.closed(1001, "the display did not answer in time");
    expect(s.last()).toMatchObject({ is: "failed", problem: { message: "the display did not answer in time" } });
  });

  it("does not try for ever where no picture comes", async () => {
    const r = rig(["ticket"]);
    await r.settle();
    for (let i = 0; i < 20 && r.last().is !== "failed"; i++) {
      r.ears[i]!.opened();
      r.ears[i]!.closed(1000, "");
      await r.fire();
    }
    expect(r.ears).toHaveLength(5);
    expect(r.last().is).toBe("failed");
  });

  it("of somebody who took over is not made again", async () => {
    const r = rig(["ticket"], true);
    await r.settle();
    r.ears[0]!.opened();
    r.ears[0]!.picture();
    r.ears[0]!.closed(1001, "given back after 30 idle minutes");
    expect(r.last()).toEqual({ is: "over", why: "given back after 30 idle minutes" });
    await r.settle();
    expect(r.asked.n).toBe(1);
  });

  it("hears nothing of a connection that it has closed", async () => {
    const r = rig(["ticket"]);
    await r.settle();
    r.ears[0]!.opened();
    r.ears[0]!.picture();
    r.watch.rest();
    expect(r.closed).toEqual([0]);
    const n = r.states.length;
    r.ears[0]!.slow(true);
    r.ears[0]!.closed(1000, "");
    expect(r.states).toHaveLength(n);
    expect(r.last()).toEqual({ is: "resting" });
    r.watch.again();
    await r.settle();
    expect(r.last()).toEqual({ is: "opening", slow: false });
    r.watch.close();
    expect(r.closed).toEqual([0, 1]);
    expect(r.waits()).toEqual([]);
  });

  it("closes a connection that comes up when nobody wants it any more", async () => {
    let come: (l: { close: () => void }) => void = () => {};
    let closed = 0;
    const w = new Watch({
      ticket: async () => ({ ticket: "t", path: "/v1/view", expires: "", viewOnly: true, says: "" }),
      open: () => new Promise((r) => (come = r)),
      tell: () => {},
      wait: () => () => {},
    });
    for (let i = 0; i < 8; i++) await Promise.resolve();
    w.close();
    come({ close: () => closed++ });
    for (let i = 0; i < 8; i++) await Promise.resolve();
    expect(closed).toBe(1);
  });
});
