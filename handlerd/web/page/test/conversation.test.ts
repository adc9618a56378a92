import { describe, expect, it } from "vitest";
import type { HandlerEvent } from "../src/lib/types.ts";
import { callTitle, Conversation, outputText, wholeInput, type ItemOf } from "../src/model/conversation.ts";

// A teller numbers events.
function teller() {
  const c = new Conversation();
  let seq = 0;
  const tell = (kind: string, data: unknown, update?: string) => {
    const ev: HandlerEvent = { seq: ++seq, time: new Date(1_700_000_000_000 + seq * 1000).toISOString(), kind, data, ...(update ? { update } : {}) };
    c.take(ev);
    return ev;
  };
  return { c, tell, update: (update: string, d: object) => tell("update", { sessionUpdate: update, ...d }, update) };
}

const text = (t: string) => ({ content: { type: "text", text: t } });
const kinds = (c: Conversation) => c.items.map((i) => i.kind);

describe("a conversation", () => {
  it("joins the pieces of a message and begins another after a tool", () => {
    const { c, update } = teller();
    update("agent_message_chunk", text("Hel"));
    update("agent_message_chunk", text("lo"));
    update("tool_call", { toolCallId: "1", title: "read" });
    update("agent_message_chunk", text("more"));
    expect(kinds(c)).toEqual(["agent", "tool", "agent"]);
    expect((c.items[0] as ItemOf<"agent">).text).toBe("Hello");
  });

  it("keeps messages apart that have other ids", () => {
    const { c, update } = teller();
    update("agent_message_chunk", { ...text("a"), messageId: "1" });
    update("agent_message_chunk", { ...text("b"), messageId: "2" });
    update("agent_message_chunk", { ...text("c"), messageId: "2" });
    expect(c.items.map((i) => (i as ItemOf<"agent">).text)).toEqual(["a", "bc"]);
  });

  it("counts each number once, so that a replay doubles nothing", () => {
    const { c, update } = teller();
    update("agent_message_chunk", text("a"));
    expect(c.take({ seq: 1, time: "", kind: "update", update: "agent_message_chunk", data: text("a") })).toBe(false);
    expect((c.items[0] as ItemOf<"agent">).text).toBe("a");
  });

  it("gives a changed item as a new object and leaves the others", () => {
    const { c, update } = teller();
    update("tool_call", { toolCallId: "1", title: "a", status: "pending" });
    update("tool_call", { toolCallId: "2", title: "b", status: "pending" });
    const [a, b] = c.items;
    update("tool_call_update", { toolCallId: "2", status: "completed", title: null });
    expect(c.items[0]).toBe(a);
    expect(c.items[1]).not.toBe(b);
    expect((c.items[1] as ItemOf<"tool">).call).toMatchObject({ title: "b", status: "completed" });
  });

  it("makes a call of an update that comes alone", () => {
    const { c, update } = teller();
    update("tool_call_update", { toolCallId: "9", status: "failed" });
    const call = (c.items[0] as ItemOf<"tool">).call;
    expect(callTitle(call)).toBe("a tool");
    expect(call.status).toBe("failed");
  });

  it("gives all of an input that does not fit a line", () => {
    const of = (rawInput: unknown, content: unknown[] = []) => {
      const { c, update } = teller();
      update("tool_call", { toolCallId: "1", rawInput, content });
      return wholeInput((c.items[0] as ItemOf<"tool">).call);
    };
    expect([of({ command: "ls" }), of({}), of(undefined), of("ls")]).toEqual(["", "", "", ""]);
    expect(of({ command: "ls\nrm -rf ~" })).toBe("command:\nls\nrm -rf ~");
    expect(of({ command: "ls", cwd: "/x", n: [1] })).toBe("command: ls\ncwd: /x\nn: [\n  1\n]".replace("n: [", "n:\n["));
    expect(of({ command: "x".repeat(161) })).toContain("x".repeat(161));
    expect(of("a\rb")).toBe("a\rb");
    expect(of({ file_path: "/a", old_string: "b", new_string: "c" }, [{ type: "diff", path: "/a", oldText: "b", newText: "c" }])).toBe("");
  });

  it("joins a question with the call that it speaks of, and closes it with the answer's words", () => {
    const { c, tell, update } = teller();
    update("tool_call", { toolCallId: "t", title: "mcp.mock.ping", rawInput: { a: 1 } });
    tell("question", { id: "r/0", method: "session/request_permission", ours: true, params: { toolCall: { toolCallId: "t", kind: "execute" }, options: [{ optionId: "y", name: "Yes", kind: "allow_once" }] } });
    expect((c.items[1] as ItemOf<"question">).question.tool).toMatchObject({ title: "mcp.mock.ping", kind: "execute", input: { a: 1 } });
    expect(c.open()).toHaveLength(1);
    expect((c.items[0] as ItemOf<"tool">).call.asked).toBe(true);
    tell("answered", { id: "r/0", answer: { outcome: { outcome: "selected", optionId: "y" } }, by: "the page" });
    expect((c.items[0] as ItemOf<"tool">).call.asked).toBe(false);
    expect(c.open()).toHaveLength(0);
    expect((c.items[1] as ItemOf<"question">).question).toMatchObject({ open: false, answer: "Yes", by: "the page" });
  });

  it("takes an id anew once the old question is answered", () => {
    const { c, tell } = teller();
    const ask = () => tell("question", { id: "r/0", method: "session/request_permission", ours: true, params: {} });
    const no = () => tell("answered", { id: "r/0", answer: { outcome: { outcome: "cancelled" } } });
    ask();
    no();
    ask();
    expect(c.open()).toHaveLength(1);
    expect(c.items).toHaveLength(2);
    no();
    expect(c.open()).toHaveLength(0);
  });

  it("closes with the turn what it left open", () => {
    const { c, tell, update } = teller();
    tell("turn", { state: "started" });
    update("tool_call", { toolCallId: "1", title: "a", status: "in_progress" });
    tell("question", { id: "q", method: "elicitation/create", ours: true, params: {} });
    tell("turn", { state: "ended", stopReason: "cancelled" });
    expect(c.working).toBe(false);
    expect(c.open()).toHaveLength(0);
    expect((c.items[0] as ItemOf<"tool">).call.status).toBe("stopped");
    expect(c.items[2]).toMatchObject({ kind: "turn", stop: "cancelled", took: 3000, calls: 1 });
  });

  it("ends the turn with the run, and says why that ended", () => {
    const { c, tell } = teller();
    tell("turn", { state: "started" });
    tell("run", { run: "r", state: "ended", error: { kind: "failed", message: "out of memory" } });
    expect(c.working).toBe(false);
    expect(c.items[0]).toMatchObject({ kind: "run", error: { message: "out of memory" } });
  });

  it("has one plan a turn, where it first stood", () => {
    const { c, tell, update } = teller();
    update("plan", { entries: [{ content: "a", status: "pending" }] });
    update("agent_message_chunk", text("x"));
    update("plan", { entries: [{ content: "a", status: "completed" }] });
    expect(kinds(c)).toEqual(["plan", "agent"]);
    expect((c.items[0] as ItemOf<"plan">).entries[0]!.status).toBe("completed");
    tell("turn", { state: "ended" });
    update("plan", { entries: [] });
    expect(kinds(c)).toEqual(["plan", "agent", "turn", "plan"]);
  });

  it("follows an approval from asked to answered in its place", () => {
    const { c, tell } = teller();
    const approval = { id: "a", kind: "network", text: "may it" };
    tell("approval", { state: "asked", approval });
    tell("notice", { text: "x" });
    tell("approval", { state: "answered", approval, answer: { allow: true, scope: "run" } });
    expect(kinds(c)).toEqual(["approval", "notice"]);
    expect(c.items[0]).toMatchObject({ state: "answered", answer: { allow: true, scope: "run" } });
  });

  it("puts an artifact with its tool call, and takes it out when it is removed", () => {
    const { c, tell, update } = teller();
    const artifact = { id: "abcd1234", name: "a.png", type: "image/png", bytes: 4 };
    update("tool_call", { toolCallId: "t", title: "shot" });
    tell("artifact", { artifact, tool: "t" });
    expect((c.items[0] as ItemOf<"tool">).call.artifacts).toHaveLength(1);
    tell("artifact", { artifact, removed: true });
    expect(c.artifacts()).toHaveLength(0);
  });

  it("joins refusals of the same thing in one turn", () => {
    const { c, tell } = teller();
    const v = { time: "", agent: "a", kind: "network", rule: "D.4", subject: "x:443", reason: "no" };
    tell("refused", v);
    tell("refused", v);
    tell("refused", { ...v, subject: "y:443" });
    expect(c.items.map((i) => (i as ItemOf<"refused">).times)).toEqual([2, 1]);
  });

  it("lives with data that is none of what it should be", () => {
    const { c, tell } = teller();
    for (const kind of ["prompt", "update", "turn", "question", "answered", "approval", "artifact", "refused", "run", "notice", "cut", "tomorrow"]) {
      for (const d of [null, 7, "x", [], { content: 7, entries: {}, toolCall: [], options: "x", update: null }]) tell(kind, d, kind === "update" ? "tool_call" : undefined);
    }
    expect(c.last).toBe(60);
  });
});

describe("what a tool said", () => {
  const call = (d: object) => {
    const { c, update } = teller();
    update("tool_call", { toolCallId: "1", ...d });
    return (c.items[0] as ItemOf<"tool">).call;
  };
  it("is its content, else its raw output", () => {
    expect(outputText(call({ content: [{ type: "content", content: { type: "text", text: "a" } }], rawOutput: "b" }))).toBe("a");
    expect(outputText(call({ rawOutput: "b" }))).toBe("b");
    expect(outputText(call({ rawOutput: { result: { content: [{ type: "text", text: "c" }] } } }))).toBe("c");
    expect(outputText(call({ rawOutput: { stdout: "d" } }))).toBe("d");
    expect(outputText(call({}))).toBe("");
  });
});
