// From a session's events to what the page shows: a list of items, of which a changed one is a new object, so that the
// others need no drawing again. Events may come twice; each number counts once.
import type { Approval, ApprovalAnswer, ApprovalEvent, ApiProblem, Artifact, ContentBlock, HandlerEvent, Verdict } from "../lib/types.ts";
import { pictureOf, pictures, type Picture } from "./pictures.ts";

export interface PlanEntry {
  content: string;
  status: "pending" | "in_progress" | "completed" | string;
  priority: string;
}

export interface ToolContent {
  type: "text" | "diff" | "terminal" | "link";
  text: string;
  path?: string;
  oldText?: string;
  uri?: string;
}

export interface ToolCall {
  id: string;
  title: string;
  name: string;
  kind: string;
  status: "pending" | "in_progress" | "completed" | "failed" | string;
  contents: ToolContent[];
  locations: { path: string; line?: number }[];
  input: unknown;
  output: unknown;
  pictures: Picture[];
  artifacts: Artifact[];
  asked: boolean; // whether it may: the question is open
  began: string;
  ended: string;
}

export interface Question {
  id: string;
  method: string;
  ours: boolean;
  tool: ToolCall | null;
  options: { optionId: string; name: string; kind: string }[];
  params: Record<string, unknown>;
  open: boolean;
  answer: string; // in words; "" while open
  by: string;
}

interface Said {
  text: string;
  pictures: Picture[];
  links: { uri: string; name: string }[];
  message: string; // the agent's id of it
}

type Base = { key: string; seq: number; time: string };
export type Item = Base &
  (
    | { kind: "user"; blocks: ContentBlock[]; cut: boolean }
    | ({ kind: "agent" } & Said)
    | ({ kind: "thought" } & Said)
    | { kind: "tool"; call: ToolCall }
    | { kind: "plan"; entries: PlanEntry[] }
    | { kind: "question"; question: Question }
    | { kind: "approval"; approval: Approval; state: string; answer: ApprovalAnswer | null }
    | { kind: "artifact"; artifact: Artifact; removed: boolean }
    | { kind: "refused"; verdict: Verdict; times: number }
    | { kind: "turn"; stop: string; error: ApiProblem | null; took: number; calls: number }
    | { kind: "run"; run: string; state: string; error: ApiProblem | null }
    | { kind: "notice"; text: string; level: string }
    | { kind: "cut"; events: number; reason: string }
  );
export type ItemOf<K extends Item["kind"]> = Extract<Item, { kind: K }>;

type Dict = Record<string, unknown>;
const dict = (v: unknown): Dict => (typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Dict) : {});
const list = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);
const str = (v: unknown): string => (typeof v === "string" ? v : "");

// A Conversation is what the events so far come to.
export class Conversation {
  items: Item[] = [];
  last = 0; // the number of the newest event
  working = false;
  turnBegan = "";
  #byKey = new Map<string, number>();
  #calls = 0;
  #planKey = "";
  #inputs = new Map<string, ToolCall>();

  // take adds an event; false says that it was known.
  take(ev: HandlerEvent): boolean {
    if (ev.seq <= this.last) return false;
    this.last = ev.seq;
    const d = dict(ev.data);
    switch (ev.kind) {
      case "prompt":
        this.#add({ key: `p${ev.seq}`, seq: ev.seq, time: ev.time, kind: "user", blocks: list(d["content"]) as ContentBlock[], cut: d["cut"] === true });
        break;
      case "update":
        this.#update(ev, ev.update || str(d["sessionUpdate"]), d);
        break;
      case "turn":
        this.#turn(ev, d);
        break;
      case "question":
        this.#question(ev, d);
        break;
      case "answered":
        this.#answered(d);
        break;
      case "approval":
        this.#approval(ev, d as unknown as ApprovalEvent);
        break;
      case "artifact":
        this.#artifact(ev, d);
        break;
      case "refused":
        this.#refused(ev, d as unknown as Verdict);
        break;
      case "run":
        this.#run(ev, d);
        break;
      case "notice":
        this.#notice(ev, str(d["text"]), "info");
        break;
      case "cut":
        this.#put("cut", { key: "cut", seq: ev.seq, time: ev.time, kind: "cut", events: Number(d["events"]) || 0, reason: str(d["reason"]) });
        break;
    }
    return true;
  }

  // open gives the questions and approvals that wait, the oldest first.
  open(): (ItemOf<"question"> | ItemOf<"approval">)[] {
    return this.items.filter((i): i is ItemOf<"question"> | ItemOf<"approval"> =>
      (i.kind === "question" && i.question.open) || (i.kind === "approval" && i.state === "asked"));
  }

  // artifacts gives those that are there, the newest first.
  artifacts(): Artifact[] {
    const out: Artifact[] = [];
    for (const i of this.items) {
      if (i.kind === "artifact" && !i.removed) out.push(i.artifact);
      if (i.kind === "tool") out.push(...i.call.artifacts);
    }
    return out.reverse();
  }

  #add(item: Item): void {
    this.#byKey.set(item.key, this.items.length);
    this.items.push(item);
  }

  #put(key: string, item: Item): void {
    const at = this.#byKey.get(key);
    if (at === undefined) this.#add(item);
    else this.items[at] = item;
  }

  #get<K extends Item["kind"]>(key: string, kind: K): ItemOf<K> | null {
    const at = this.#byKey.get(key);
    const item = at === undefined ? undefined : this.items[at];
    return item?.kind === kind ? (item as ItemOf<K>) : null;
  }

  #update(ev: HandlerEvent, what: string, d: Dict): void {
    switch (what) {
      case "agent_message_chunk":
        return this.#chunk(ev, "agent", d);
      case "agent_thought_chunk":
        return this.#chunk(ev, "thought", d);
      case "user_message_chunk":
        return this.#userChunk(ev, d);
      case "tool_call":
      case "tool_call_update":
        return this.#tool(ev, d);
      case "plan":
        return this.#plan(ev, d);
      case "notice": {
        const text = [str(d["title"]), str(d["description"])].filter((s) => s !== "").join(": ");
        return this.#notice(ev, text, str(d["severity"]) || "info");
      }
      case "compaction_update":
        return this.#notice(ev, "The agent made its memory of the conversation shorter", "info");
    }
  }

  // chunk joins pieces of one message: those that follow one another, and with the same messageId where there is one.
  #chunk(ev: HandlerEvent, kind: "agent" | "thought", d: Dict): void {
    const c = dict(d["content"]);
    const message = str(d["messageId"]);
    const pic = c["type"] === "image" ? pictureOf(c["mimeType"], c["data"], c["uri"]) : null;
    const text = c["type"] === "text" ? str(c["text"]) : c["type"] === "resource" ? str(dict(c["resource"])["text"]) : "";
    const link = c["type"] === "resource_link" ? { uri: str(c["uri"]), name: str(c["title"]) || str(c["name"]) } : null;
    const end = this.items[this.items.length - 1];
    if (end && end.kind === kind && (end.message === message || message === "")) {
      this.items[this.items.length - 1] = {
        ...end,
        text: end.text + text,
        pictures: pic ? [...end.pictures, pic] : end.pictures,
        links: link ? [...end.links, link] : end.links,
      };
      return;
    }
    if (text === "" && !pic && !link) return;
    this.#add({ key: `m${ev.seq}`, seq: ev.seq, time: ev.time, kind, text, message, pictures: pic ? [pic] : [], links: link ? [link] : [] });
  }

  #userChunk(ev: HandlerEvent, d: Dict): void {
    const block = dict(d["content"]) as unknown as ContentBlock;
    const end = this.items[this.items.length - 1];
    if (end?.kind !== "user") {
      this.#add({ key: `p${ev.seq}`, seq: ev.seq, time: ev.time, kind: "user", blocks: [block], cut: false });
      return;
    }
    const before = end.blocks[end.blocks.length - 1];
    const blocks = before?.type === "text" && block.type === "text"
      ? [...end.blocks.slice(0, -1), { ...before, text: str(before.text) + str(block.text) }]
      : [...end.blocks, block];
    this.items[this.items.length - 1] = { ...end, blocks };
  }

  #tool(ev: HandlerEvent, d: Dict): void {
    const id = str(d["toolCallId"]);
    const key = `t:${id}`;
    const old = this.#get(key, "tool");
    const call = mergeCall(old?.call ?? this.#inputs.get(id) ?? newCall(id, ev.time), d, ev.time);
    this.#inputs.delete(id);
    if (!old) this.#calls++;
    this.#put(key, { key, seq: old?.seq ?? ev.seq, time: old?.time ?? ev.time, kind: "tool", call });
  }

  // plan replaces the plan of its turn where it stands.
  #plan(ev: HandlerEvent, d: Dict): void {
    const entries = list(d["entries"]).map((e) => {
      const o = dict(e);
      return { content: str(o["content"]), status: str(o["status"]), priority: str(o["priority"]) };
    });
    if (this.#planKey === "") this.#planKey = `plan${ev.seq}`;
    const key = this.#planKey;
    this.#put(key, { key, seq: ev.seq, time: ev.time, kind: "plan", entries });
  }

  #turn(ev: HandlerEvent, d: Dict): void {
    this.#planKey = "";
    if (d["state"] === "started") {
      this.working = true;
      this.turnBegan = ev.time;
      this.#calls = 0;
      return;
    }
    this.working = false;
    const error = (d["error"] as ApiProblem | undefined) ?? null;
    const took = this.turnBegan === "" ? NaN : Date.parse(ev.time) - Date.parse(this.turnBegan);
    this.turnBegan = "";
    this.#settle(ev.time);
    this.#add({ key: `e${ev.seq}`, seq: ev.seq, time: ev.time, kind: "turn", stop: str(d["stopReason"]), error, took, calls: this.#calls });
  }

  // settle closes what the turn left open: nobody will answer, and no call goes on.
  #settle(time: string): void {
    for (let i = this.items.length - 1; i >= 0; i--) {
      const item = this.items[i]!;
      if (item.kind === "turn") break;
      if (item.kind === "question" && item.question.open) {
        this.items[i] = { ...item, question: { ...item.question, open: false, answer: "the turn ended before an answer" } };
      }
      if (item.kind === "tool" && (item.call.status === "pending" || item.call.status === "in_progress")) {
        this.items[i] = { ...item, call: { ...item.call, status: "stopped", ended: time } };
      }
    }
  }

  #question(ev: HandlerEvent, d: Dict): void {
    const params = dict(d["params"]);
    const tc = dict(params["toolCall"]);
    const id = str(tc["toolCallId"]);
    const known = id === "" ? null : this.#get(`t:${id}`, "tool");
    const tool = id === "" ? null : mergeCall(known?.call ?? newCall(id, ev.time), tc, ev.time);
    const options = list(params["options"]).map((o) => {
      const x = dict(o);
      return { optionId: str(x["optionId"]), name: str(x["name"]), kind: str(x["kind"]) };
    });
    const question: Question = { id: str(d["id"]), method: str(d["method"]), ours: d["ours"] === true, tool, options, params, open: true, answer: "", by: "" };
    const key = `q:${question.id}:${ev.seq}`;
    this.#byKey.set(`q:${question.id}`, this.items.length);
    this.#add({ key, seq: ev.seq, time: ev.time, kind: "question", question });
    if (known) this.#put(known.key, { ...known, call: { ...known.call, asked: true } });
  }

  #answered(d: Dict): void {
    const q = this.#get(`q:${str(d["id"])}`, "question");
    if (!q) return;
    const at = this.#byKey.get(`q:${str(d["id"])}`)!;
    this.items[at] = { ...q, question: { ...q.question, open: false, answer: answerWords(q.question, dict(d["answer"])), by: str(d["by"]) } };
    const tool = this.#get(`t:${q.question.tool?.id ?? ""}`, "tool");
    if (tool) this.#put(tool.key, { ...tool, call: { ...tool.call, asked: false } });
  }

  #approval(ev: HandlerEvent, e: ApprovalEvent): void {
    if (!e.approval) return;
    const key = `a:${e.approval.id}`;
    const old = this.#get(key, "approval");
    this.#put(key, {
      key, seq: old?.seq ?? ev.seq, time: old?.time ?? ev.time, kind: "approval",
      approval: { ...old?.approval, ...e.approval }, state: e.state, answer: e.answer ?? null,
    });
  }

  #artifact(ev: HandlerEvent, d: Dict): void {
    const artifact = d["artifact"] as Artifact | undefined;
    if (!artifact) return;
    const removed = d["removed"] === true;
    const tool = str(d["tool"]) === "" ? null : this.#get(`t:${str(d["tool"])}`, "tool");
    const key = `f:${artifact.id}`;
    if (removed) {
      for (const [i, item] of this.items.entries()) {
        if (item.kind === "tool" && item.call.artifacts.some((a) => a.id === artifact.id)) {
          this.items[i] = { ...item, call: { ...item.call, artifacts: item.call.artifacts.filter((a) => a.id !== artifact.id) } };
        }
      }
    }
    if (tool && !removed) {
      const artifacts = [...tool.call.artifacts.filter((a) => a.id !== artifact.id), artifact];
      this.#put(tool.key, { ...tool, call: { ...tool.call, artifacts } });
      return;
    }
    if (removed && !this.#byKey.has(key)) return;
    const old = this.#get(key, "artifact");
    this.#put(key, { key, seq: old?.seq ?? ev.seq, time: old?.time ?? ev.time, kind: "artifact", artifact, removed });
  }

  // refused joins the same refusal that comes again at once: a page asks for one host many times.
  #refused(ev: HandlerEvent, verdict: Verdict): void {
    for (let i = this.items.length - 1; i >= 0 && i >= this.items.length - 12; i--) {
      const item = this.items[i]!;
      if (item.kind === "turn" || item.kind === "user") break;
      if (item.kind === "refused" && item.verdict.subject === verdict.subject && item.verdict.rule === verdict.rule) {
        this.items[i] = { ...item, times: item.times + 1 };
        return;
      }
    }
    this.#add({ key: `r${ev.seq}`, seq: ev.seq, time: ev.time, kind: "refused", verdict, times: 1 });
  }

  #run(ev: HandlerEvent, d: Dict): void {
    if (d["state"] === "ended") {
      this.working = false;
      this.#settle(ev.time);
    }
    this.#add({ key: `u${ev.seq}`, seq: ev.seq, time: ev.time, kind: "run", run: str(d["run"]), state: str(d["state"]), error: (d["error"] as ApiProblem | undefined) ?? null });
  }

  #notice(ev: HandlerEvent, text: string, level: string): void {
    if (text !== "") this.#add({ key: `n${ev.seq}`, seq: ev.seq, time: ev.time, kind: "notice", text, level });
  }
}

function newCall(id: string, time: string): ToolCall {
  return { id, title: "", name: "", kind: "other", status: "pending", contents: [], locations: [], input: undefined, output: undefined, pictures: [], artifacts: [], asked: false, began: time, ended: "" };
}

// mergeCall gives the call with what an update names; null and absent leave what there is.
function mergeCall(call: ToolCall, d: Dict, time: string): ToolCall {
  const c = { ...call };
  if (typeof d["title"] === "string") c.title = d["title"];
  if (typeof d["name"] === "string") c.name = d["name"];
  if (typeof d["kind"] === "string") c.kind = d["kind"];
  if (typeof d["status"] === "string") c.status = d["status"];
  if (d["rawInput"] !== undefined && d["rawInput"] !== null) c.input = d["rawInput"];
  if (d["rawOutput"] !== undefined && d["rawOutput"] !== null) c.output = d["rawOutput"];
  if (Array.isArray(d["locations"])) {
    c.locations = d["locations"].map((l) => ({ path: str(dict(l)["path"]), line: dict(l)["line"] as number | undefined }));
  }
  const content = Array.isArray(d["content"]) ? d["content"] : null;
  if (content) c.contents = content.flatMap(toolContent);
  const found = pictures(content, d["rawOutput"], d["_meta"]);
  if (content || found.length > 0) {
    const keep = content && pictures(content, null).length > 0 ? [] : c.pictures;
    const all = [...keep, ...found];
    c.pictures = all.filter((p, i) => all.findIndex((q) => q.key === p.key) === i);
  }
  if (c.ended === "" && (c.status === "completed" || c.status === "failed")) c.ended = time;
  return c;
}

function toolContent(v: unknown): ToolContent[] {
  const o = dict(v);
  switch (o["type"]) {
    case "content": {
      const b = dict(o["content"]);
      if (b["type"] === "text") return [{ type: "text", text: str(b["text"]) }];
      if (b["type"] === "resource_link") return [{ type: "link", text: str(b["title"]) || str(b["name"]) || str(b["uri"]), uri: str(b["uri"]) }];
      if (b["type"] === "resource") {
        const r = dict(b["resource"]);
        return typeof r["text"] === "string" ? [{ type: "text", text: r["text"] }] : [];
      }
      return [];
    }
    case "diff":
      return [{ type: "diff", path: str(o["path"]), oldText: str(o["oldText"]), text: str(o["newText"]) }];
    case "terminal":
      return [{ type: "terminal", text: str(o["terminalId"]) }];
    default:
      return [];
  }
}

// answerWords says an answer as a person reads it.
function answerWords(q: Question, answer: Dict): string {
  const outcome = dict(answer["outcome"]);
  if (outcome["outcome"] === "selected") {
    return q.options.find((o) => o.optionId === outcome["optionId"])?.name ?? str(outcome["optionId"]);
  }
  if (outcome["outcome"] === "cancelled" || answer["action"] === "cancel") return "no answer";
  if (answer["action"] === "accept") return "answered";
  if (answer["action"] === "decline") return "declined";
  return Object.keys(answer).length === 0 ? "no answer" : "answered"; // it was withdrawn, or nobody could be asked it
}

// wholeInput gives what a call is to be called with, where a line cannot say all of it: nobody is to allow what is not shown.
// What a diff beside it shows is left out.
export function wholeInput(call: ToolCall): string {
  const input = typeof call.input === "object" && call.input !== null ? Object.entries(call.input) : call.input === undefined || call.input === null ? [] : [["", call.input]];
  const diff = call.contents.some((c) => c.type === "diff");
  const rows = input.filter(([k]) => !(diff && inDiffs.includes(k as string))).map(([k, v]) => [k as string, typeof v === "string" ? v : JSON.stringify(v, null, 2) ?? ""] as const);
  const short = rows.length === 0 || (rows.length === 1 && rows[0]![1].length <= 160 && !/[\n\r]/.test(rows[0]![1]));
  return short ? "" : rows.map(([k, v]) => (k === "" ? v : /[\n\r]/.test(v) ? `${k}:\n${v}` : `${k}: ${v}`)).join("\n");
}

const inDiffs = ["old_string", "new_string", "content", "edits", "oldText", "newText"];

// fallbackText gives a call's own words where its content has none: rawOutput as text.
export function outputText(call: ToolCall): string {
  const texts = call.contents.filter((c) => c.type === "text").map((c) => c.text);
  if (texts.length > 0) return texts.join("\n");
  return rawText(call.output);
}

function rawText(v: unknown): string {
  if (typeof v === "string") return v;
  const o = dict(v);
  const content = list(o["content"]).length > 0 ? list(o["content"]) : list(dict(o["result"])["content"]);
  const parts = (Array.isArray(v) ? v : content).map((c) => str(dict(c)["text"])).filter((t) => t !== "");
  if (parts.length > 0) return parts.join("\n");
  for (const key of ["output", "stdout", "formatted_output", "aggregated_output", "text"]) {
    if (typeof o[key] === "string" && o[key] !== "") return o[key];
  }
  return "";
}

// callTitle gives the line that a call is known by.
export function callTitle(call: ToolCall): string {
  return call.title || call.name || "a tool";
}
