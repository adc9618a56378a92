// What the page knows of the daemon: the lists, kept current by the feed, and the connection's state.
import { computed, signal } from "@preact/signals";
import { change, forget, get, Problem, sentence, whoami, kindLogin } from "./lib/api.ts";
import { Stream } from "./lib/stream.ts";
import type { Approval, ApprovalAnswer, Artifact, Change, Me, Run, Session } from "./lib/types.ts";
import { parse, type Route } from "./model/route.ts";
import { loadAgents } from "./agents.ts";

export type Link = "starting" | "live" | "lost" | "login";

export const route = signal<Route>(parse(location.hash));
export const me = signal<Me | null>(null);
export const connection = signal<Link>("starting");
export const sessions = signal<Map<string, Session>>(new Map());
export const runs = signal<Map<string, Run>>(new Map());
export const approvals = signal<Map<string, Approval>>(new Map());
export const loaded = signal(false);
export const failed = signal<unknown>(null); // why the lists could not be read
export const now = signal(Date.now()); // advances every few seconds, for relative times
export const said = signal(""); // for screen readers: what just happened
export const palette = signal(false); // whether it is open

// newest gives the sessions, those that changed last first.
export const newest = computed(() =>
  [...sessions.value.values()].sort((a, b) => (a.updated < b.updated ? 1 : a.updated > b.updated ? -1 : a.id < b.id ? 1 : -1)));

// waiting gives the approvals, the first to expire first.
export const waiting = computed(() => [...approvals.value.values()].sort((a, b) => (a.expires < b.expires ? -1 : 1)));

// asking gives the sessions whose agent asks something that can be answered here.
export const asking = computed(() => newest.value.filter((s) => s.ours && s.questions > 0));

// needs is how many things wait for the person.
export const needs = computed(() => waiting.value.length + asking.value.reduce((n, s) => n + s.questions, 0));

// sessionOf finds whose approval it is.
export function sessionOf(a: Approval): Session | null {
  const of = newest.value.filter((s) => s.run === a.run);
  return of.find((s) => s.acp === a.session) ?? (of.length === 1 ? of[0]! : null);
}

// approvalsOf gives those of a session.
export function approvalsOf(s: Session): Approval[] {
  return waiting.value.filter((a) => s.run !== undefined && a.run === s.run && (!a.session || a.session === s.acp));
}

// put changes one entry of a map, or takes it out where v is null.
function put<V>(m: { value: Map<string, V> }, id: string, v: V | null): void {
  const next = new Map(m.value);
  if (v === null) next.delete(id);
  else next.set(id, v);
  m.value = next;
}

export function putSession(s: Session): void {
  put(sessions, s.id, s);
}

export function dropSession(id: string): void {
  put(sessions, id, null);
}

// refresh reads the lists whole: at the start, and whenever the feed was away.
export async function refresh(): Promise<void> {
  try {
    const [ss, rs, as] = await Promise.all([
      get<Session[] | null>("/v1/sessions?limit=500"),
      get<Run[] | null>("/v1/runs"),
      get<Approval[] | null>("/v1/approvals"),
    ]);
    sessions.value = new Map((ss ?? []).map((s) => [s.id, s]));
    runs.value = new Map((rs ?? []).map((r) => [r.id, r]));
    approvals.value = new Map((as ?? []).map((a) => [a.id, a]));
    loaded.value = true;
    failed.value = null;
  } catch (err) {
    failed.value = err;
    if (err instanceof Problem && err.kind === kindLogin) connection.value = "login";
  }
}

// readRun asks for a run's own numbers, which the feed does not tell.
export async function readRun(id: string): Promise<void> {
  try {
    put(runs, id, await get<Run>(`/v1/runs/${encodeURIComponent(id)}`));
  } catch {
    // it has ended, which the feed says
  }
}

// apply takes one change of the feed.
export function apply(c: Change): void {
  if (c.session) {
    const before = sessions.value.get(c.session.id);
    putSession(c.session);
    if (before?.turn === "working" && c.session.turn === "idle") say(`${c.session.title || c.session.agent}: the turn ended`);
    if ((before?.questions ?? 0) < c.session.questions) say(`${c.session.title || c.session.agent} asks something`);
  }
  if (c.removed) dropSession(c.removed);
  if (c.run) put(runs, c.run.id, c.run);
  if (c.ended) {
    put(runs, c.ended, null);
    approvals.value = new Map([...approvals.value].filter(([, a]) => a.run !== c.ended));
  }
  if (c.approval?.approval) {
    const asked = c.approval.state === "asked";
    if (asked && !approvals.value.has(c.approval.approval.id)) say(`Handler asks: ${c.approval.approval.text}`);
    put(approvals, c.approval.approval.id, asked ? c.approval.approval : null);
  }
  if (c.agents) void loadAgents();
}

function say(text: string): void {
  said.value = text;
}

let feed: Stream | null = null;

// start follows the feed until the page is closed.
export function start(): void {
  window.addEventListener("hashchange", () => (route.value = parse(location.hash)));
  setInterval(() => (now.value = Date.now()), 10_000);
  void enter();
}

async function enter(): Promise<void> {
  try {
    me.value = await whoami();
  } catch (err) {
    failed.value = err;
    if (err instanceof Problem && err.kind === kindLogin) {
      connection.value = "login";
      return;
    }
    connection.value = "lost";
    setTimeout(() => void enter(), 1_500);
    return;
  }
  void loadAgents();
  feed ??= new Stream({
    url: () => "/api/v1/feed?watch=1",
    take: (data) => {
      apply(JSON.parse(data) as Change);
      return 0;
    },
    state: (live) => {
      connection.value = live ? "live" : "lost";
      if (live) void refresh();
    },
    broken: again,
  });
}

// again asks whether the login still holds after a break: a restarted daemon may want another.
async function again(): Promise<"retry" | "stop"> {
  forget();
  try {
    me.value = await whoami();
  } catch (err) {
    if (err instanceof Problem && err.kind === kindLogin) {
      connection.value = "login";
      return "stop";
    }
  }
  return "retry";
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") {
    now.value = Date.now();
    feed?.now();
  }
});

// answer answers an approval; the card goes when the daemon says so.
export async function answer(a: Approval, allow: boolean, scope: string): Promise<string> {
  const body: ApprovalAnswer = { allow, scope, by: "the page" };
  const done = await change<{ note?: string }>("POST", `/v1/approvals/${encodeURIComponent(a.id)}`, body);
  put(approvals, a.id, null);
  return done?.note ?? "";
}

// go leads to a route.
export function go(hash: string): void {
  if (location.hash === hash) route.value = parse(hash);
  else location.hash = hash;
}

// removeArtifact deletes one.
export async function removeArtifact(a: Artifact): Promise<void> {
  await change("DELETE", `/v1/artifacts/${encodeURIComponent(a.id)}`);
}

export { sentence };
