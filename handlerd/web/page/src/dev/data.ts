// Made-up sessions for work on the page.
import type { Approval, Change, HandlerEvent, Run, Session, Verdict } from "../lib/types.ts";

export interface Held {
  session: Session;
  events: HandlerEvent[];
  followers: Set<(v: unknown) => void>;
  timers: NodeJS.Timeout[];
}

export interface World {
  sessions: Map<string, Held>;
  runs: Map<string, Run>;
  approvals: Map<string, Approval>;
  feeds: Set<(v: unknown) => void>;
}

// png is a small picture: 2 by 2.
export const png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGNkYPjPwMDAxAADDAwMDAAKAgED1+yVJAAAAABJRU5ErkJggg==";

const past = (min: number) => new Date(Date.now() - min * 60_000).toISOString();

function makeSession(id: string, agent: string, title: string, min: number, more: Partial<Session> = {}): Session {
  return {
    id, agent, harness: "claude-code", acp: "acp-" + id, cwd: "/home/ana/src/shop", title, client: "page", run: undefined, lastRun: "r-" + id,
    turn: "idle", created: past(min + 5), updated: past(min), events: 0, continues: "load", ours: false, questions: 0, images: true, embeds: true, ...more,
  };
}

export function tell(w: World, c: Change): void {
  for (const f of w.feeds) f(c);
}

function emit(w: World, s: Held, kind: string, d: unknown, update?: string): number {
  const ev: HandlerEvent = { seq: s.events.length + 1, time: new Date().toISOString(), kind, data: d, ...(update ? { update } : {}) };
  s.events.push(ev);
  s.session.events = ev.seq;
  for (const f of s.followers) f(ev);
  void w;
  return ev.seq;
}

export function world(): World {
  const w: World = { sessions: new Map(), runs: new Map(), approvals: new Map(), feeds: new Set() };
  const add = (session: Session) => {
    const h: Held = { session, events: [], followers: new Set(), timers: [] };
    w.sessions.set(session.id, h);
    return h;
  };
  const shop = add(makeSession("k3f9", "web", "Shop cart", 1, {
    run: "r1", ours: true, turn: "working", questions: 1,
    modes: { currentModeId: "default", availableModes: [{ id: "default", name: "Ask first" }, { id: "plan", name: "Plan" }, { id: "acceptEdits", name: "Accept edits" }] },
    options: [{ id: "model", name: "Model", type: "select", category: "model", currentValue: "opus", options: [{ value: "opus", name: "Opus" }, { value: "sonnet", name: "Sonnet" }] }],
    commands: [{ name: "review", description: "Review the changes of this branch", input: { hint: "branch" } }, { name: "compact", description: "Make the conversation shorter" }, { name: "init", description: "Write down how this project is built" }],
    usage: { used: 41_200, size: 200_000, cost: { amount: 0.1234, currency: "USD" } },
  }));
  shopEvents(w, shop);
  add(makeSession("p0c2", "docs", "Fix the typos in the manual", 130, { continues: "load" }));
  add(makeSession("q7aa", "web", "Why is checkout slow", 600, { client: "run", run: "r2" }));
  add(makeSession("z1e4", "demo", "Open a page and take a picture", 3000, { continues: "", harness: "demo" }));
  bigEvents(w, add(makeSession("big1", "web", "Ten thousand events", 5000)));
  w.runs.set("r1", run("r1"));
  w.runs.set("r2", { ...run("r2"), browser: "vnc", display: "vnc" });
  const browser: Approval = {
    id: "ap1", kind: "browser", run: "r1", agent: "web", session: "acp-k3f9", subject: "browser_click https://shop.example.org", text: "click “Place order” on shop.example.org",
    detail: "", scopes: ["once"], waiting: 1, asked: past(0), expires: new Date(Date.now() + 1_000_000).toISOString(),
    browser: {
      tool: "browser_click", action: "click", visit: false, pages: [{ site: "https://shop.example.org", url: "https://shop.example.org/checkout?step=3" }], title: "Checkout – Shop", frame: undefined,
      targets: [{ site: "https://shop.example.org", url: "https://shop.example.org/orders" }], elements: [{ role: "button", name: "Place order" }], values: [], digest: "ab", picture: { width: 320, height: 80, bytes: 400 },
    },
  };
  const net: Approval = {
    id: "ap2", kind: "network", run: "r1", agent: "web", session: "acp-k3f9", subject: "api.example.org:443", text: "web wants to reach api.example.org:443", detail: "For this run: every connection to api.example.org until the run ends. Always: written to web.toml.",
    scopes: ["once", "run", "always"], waiting: 2, asked: past(0), expires: new Date(Date.now() + 102_000).toISOString(),
  };
  w.approvals.set("ap1", browser);
  w.approvals.set("ap2", net);
  emit(w, shop, "approval", { state: "asked", approval: browser });
  return w;
}

function run(id: string): Run {
  const limit = (value: number) => ({ value, enforced: true, by: "kernel" });
  return {
    id, agent: "web", harness: "claude-code", state: "running", turn: "working", since: past(4), scopes: [{ path: "/home/ana/src/shop", mode: "rw" }], browser: "guarded", hosts: 3, notices: [],
    toolCalls: 12, allowed: 14, refused: 2, failed: 0, traffic: [{ host: "registry.npmjs.org", requests: 3, sent: 1200, received: 48_000 }], parts: [{ kind: "browser", name: "playwright", sandbox: "b1", memoryBytes: 420e6, memoryLimit: limit(2 * 2 ** 30) }], memoryBytes: 312e6, memoryLimit: limit(2e9), processes: 23, processLimit: limit(512),
  };
}

function shopEvents(w: World, s: Held): void {
  const u = (update: string, d: object) => emit(w, s, "update", { sessionUpdate: update, ...d }, update);
  const says = (text: string) => u("agent_message_chunk", { content: { type: "text", text } });
  emit(w, s, "run", { run: "r1", state: "started" });
  emit(w, s, "prompt", { content: [{ type: "text", text: "open the cart and tell me what is broken" }] });
  emit(w, s, "turn", { state: "started" });
  u("agent_thought_chunk", { content: { type: "text", text: "The person wants me to look at the cart.\nI should open it in the browser first." } });
  says("I'll look at the page first.");
  u("plan", { entries: [{ content: "Open the cart in the browser", status: "completed", priority: "high" }, { content: "Find where the total is computed", status: "in_progress", priority: "high" }, { content: "Fix it and run the tests", status: "pending", priority: "medium" }] });
  u("tool_call", { toolCallId: "t1", title: "browser_navigate", kind: "fetch", status: "in_progress", rawInput: { url: "http://127.0.0.1:5173/cart" } });
  u("tool_call_update", { toolCallId: "t1", status: "completed", content: [{ type: "content", content: { type: "text", text: "Page URL: http://127.0.0.1:5173/cart\nPage Title: Shop – cart" } }] });
  u("tool_call", { toolCallId: "t2", title: "browser_take_screenshot", kind: "other", status: "pending", rawInput: {} });
  u("tool_call_update", { toolCallId: "t2", status: "completed", content: [{ type: "content", content: { type: "image", data: png, mimeType: "image/png" } }, { type: "content", content: { type: "image", data: "bm90IGEgcGljdHVyZQ==", mimeType: "image/png" } }] });
  emit(w, s, "refused", { time: past(2), run: "r1", agent: "web", kind: "network", rule: "D.4", verdict: "refuse", subject: "fonts.example.com:443", reason: "no rule of agent web names it", hint: "allow it: handler policy allow web fonts.example.com" });
  says("The cart total **ignores the discount**. It is computed here:\n\n```ts\nexport function total(items: Item[], discount = 0): number {\n  // the discount is never used\n  return items.reduce((sum, i) => sum + i.price * i.count, 0);\n}\n```\n\n| item | price | shown |\n|---|--:|--:|\n| book | 12.00 | 12.00 |\n| discount | −2.00 | 0.00 |\n\nHostile: <script>alert(1)</script> ![x](https://evil.example/?q=1) [link](javascript:alert(1)) [good](https://example.org/)");
  u("tool_call", { toolCallId: "t3", title: "Edit src/cart.ts", kind: "edit", status: "completed", content: [{ type: "diff", path: "/home/ana/src/shop/src/cart.ts", oldText: "export function total(items: Item[], discount = 0): number {\n  return items.reduce((sum, i) => sum + i.price * i.count, 0);\n}\n", newText: "export function total(items: Item[], discount = 0): number {\n  const sum = items.reduce((sum, i) => sum + i.price * i.count, 0);\n  return Math.max(0, sum - discount);\n}\n" }] });
  u("tool_call", { toolCallId: "t4", title: "npm test", name: "Bash", kind: "execute", status: "completed", rawInput: { command: "npm test" }, content: [{ type: "content", content: { type: "text", text: Array.from({ length: 10_000 }, (_, i) => `ok ${i + 1} - a test that passes`).join("\n") } }] });
  emit(w, s, "artifact", { artifact: { id: "art00001", run: "r1", session: "acp-k3f9", agent: "web", name: "cart.pdf", type: "application/pdf", bytes: 88_000, sha256: "", created: past(1), path: "/x" }, tool: "t1" });
  u("tool_call", { toolCallId: "t5", title: "npm run deploy", kind: "execute", status: "pending", rawInput: { command: "npm run deploy -- --env staging" } });
  emit(w, s, "question", { id: "r1/5", method: "session/request_permission", ours: true, params: { toolCall: { toolCallId: "t5" }, options: [{ optionId: "a", name: "Allow", kind: "allow_once" }, { optionId: "b", name: "Always allow", kind: "allow_always" }, { optionId: "c", name: "Reject", kind: "reject_once" }] } });
}

function bigEvents(w: World, s: Held): void {
  for (let i = 0; s.events.length < 10_000; i++) {
    emit(w, s, "prompt", { content: [{ type: "text", text: `question ${i}` }] });
    emit(w, s, "turn", { state: "started" });
    for (let j = 0; j < 10; j++) emit(w, s, "update", { content: { type: "text", text: `piece ${j} of an answer with *some* words in it. ` } }, "agent_message_chunk");
    for (let j = 0; j < 4; j++) {
      emit(w, s, "update", { toolCallId: `${i}-${j}`, title: `read src/file${j}.ts`, kind: "read", status: "in_progress", rawInput: { path: `src/file${j}.ts` } }, "tool_call");
      emit(w, s, "update", { toolCallId: `${i}-${j}`, status: "completed" }, "tool_call_update");
    }
    emit(w, s, "turn", { state: "ended", stopReason: "end_turn" });
  }
}

export function begin(w: World, b: Record<string, unknown>): Session {
  const id = Math.random().toString(36).slice(2, 6);
  const session = makeSession(id, String(b["agent"]), "", 0, { cwd: String(b["cwd"]), ours: true, run: "r-" + id });
  w.sessions.set(id, { session, events: [], followers: new Set(), timers: [] });
  tell(w, { session });
  return session;
}

export function prompt(w: World, s: Held, b: Record<string, unknown>): number {
  const seq = emit(w, s, "prompt", { content: b["content"] });
  emit(w, s, "turn", { state: "started" });
  s.session.turn = "working";
  if (!s.session.title) s.session.title = String((b["content"] as { text?: string }[])[0]?.text ?? "").slice(0, 60);
  const words = "Here is a long answer that **streams in** word by word, with a list:\n\n- first\n- second\n\n" + "and then a paragraph that goes on and on so that the view has to follow its end. ".repeat(30);
  words.split(/(?<= )/).forEach((text, i, all) => {
    s.timers.push(setTimeout(() => {
      emit(w, s, "update", { content: { type: "text", text } }, "agent_message_chunk");
      if (i === all.length - 1) end(w, s, "end_turn");
    }, 20 * i));
  });
  tell(w, { session: s.session });
  return seq;
}

function end(w: World, s: Held, stopReason: string): void {
  emit(w, s, "turn", { state: "ended", stopReason });
  s.session.turn = "idle";
  s.session.questions = 0;
  tell(w, { session: s.session });
}

export function cancel(w: World, s: Held): void {
  s.timers.forEach(clearTimeout);
  end(w, s, "cancelled");
}

export function answered(w: World, s: Held, b: Record<string, unknown>): void {
  emit(w, s, "answered", { id: b["id"], answer: { outcome: { outcome: "selected", optionId: b["option"] } }, by: "the page" });
  s.session.questions = 0;
}

export function option(s: Held, b: Record<string, unknown>): void {
  if (b["id"] === "mode" && s.session.modes) s.session.modes.currentModeId = String(b["value"]);
  for (const o of s.session.options ?? []) if (o.id === b["id"]) o.currentValue = b["value"] as string;
}

export function decide(w: World, id: string, b: Record<string, unknown>): unknown {
  const approval = w.approvals.get(id);
  w.approvals.delete(id);
  if (approval) {
    tell(w, { approval: { state: "answered", approval } });
    for (const s of w.sessions.values()) if (s.session.acp === approval.session) emit(w, s, "approval", { state: "answered", approval, answer: b });
  }
  return { approval, answer: b };
}

export const verdicts: Verdict[] = [
  { time: past(4), run: "r1", agent: "web", kind: "network", rule: "D.4", verdict: "allow", subject: "registry.npmjs.org:443", reason: "allowed by preset npm" },
  { time: past(2), run: "r1", agent: "web", kind: "network", rule: "D.4", verdict: "refuse", subject: "fonts.example.com:443", reason: "no rule of agent web names it", hint: "allow it: handler policy allow web fonts.example.com" },
];

const agents = [
  { name: "web", harness: "claude-code", description: "the shop, with a browser", file: "/home/ana/.config/handler/agents/web.toml", scopes: [], display: true, displayMode: "vnc" },
  { name: "docs", harness: "claude-code", description: "", file: "/home/ana/.config/handler/agents/docs.toml", scopes: [], display: false, displayMode: "none" },
  { name: "demo", harness: "demo", description: "a scripted agent, to try everything without an account", scopes: [], display: false, displayMode: "none" },
  { name: "claude-code", harness: "claude-code", description: "", scopes: [], display: false, displayMode: "none" },
];

export function fixed(path: string, method: string): unknown {
  if (method !== "GET") return undefined;
  switch (path) {
    case "/v1/agents":
      return agents;
    case "/v1/display":
      return { sockets: [], problem: { message: "there is no Wayland socket in /run/user/1000", hint: "start a Wayland session, or name one with --wayland" } };
    case "/v1/artifacts":
      return { artifacts: [{ id: "art00001", run: "r1", session: "acp-k3f9", agent: "web", name: "cart.png", type: "image/png", bytes: 88_000, sha256: "", created: past(1), path: "/x" }], usage: { count: 1, maxCount: 2000, bytes: 88_000, maxBytes: 1_073_741_824 } };
    case "/v1/doctor":
      return [
        { id: "podman", level: "ok", title: "podman 4.3.1, own service and storage" },
        { id: "cgroup", level: "remark", title: "cgroup v1: the kernel does not enforce memory limits for you", detail: "handlerd measures and stops instead; to have the kernel do it, boot with systemd.unified_cgroup_hierarchy=1" },
        { id: "ids", level: "problem", title: "no subordinate ids for “ana”", remedy: ["sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ana"] },
      ];
    case "/v1/images":
      return [{ kind: "toolbox", name: "default", state: "fresh", bytes: 1.1e9, created: past(3000) }, { kind: "harness", name: "claude-code", state: "stale", reason: "the toolbox is newer", bytes: 4e8, remedy: "handler harness build claude-code" }, { kind: "addon", name: "playwright", state: "missing", remedy: "handler addon build playwright" }];
    default:
      return /^\/v1\/runs\/[^/]+\/rules$/.test(path) ? [{ kind: "allow", rule: "registry.npmjs.org", by: "preset npm" }] : undefined;
  }
}
