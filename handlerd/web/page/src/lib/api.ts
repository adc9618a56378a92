// The one way to the daemon: same origin, the token on whatever changes something, and errors that a person can read.
import type { ApiProblem, Me } from "./types.ts";

// A Problem is an error of the API, or of the way there, as a person reads it.
export class Problem extends Error {
  kind: string;
  hint: string;
  constructor(p: ApiProblem) {
    super(p.message);
    this.kind = p.kind;
    this.hint = p.hint ?? "";
  }
}

// The kinds of a Problem that are not the API's own.
export const kindAway = "away"; // nobody answers
export const kindLogin = "login"; // the session of this browser has ended

let me: Me | null = null;
let asking: Promise<Me> | null = null;

// whoami asks once who is logged in; again after forget.
export function whoami(): Promise<Me> {
  if (me) return Promise.resolve(me);
  asking ??= (async () => {
    try {
      me = await read<Me>(await send("/api/me", { method: "GET" }));
      return me;
    } finally {
      asking = null;
    }
  })();
  return asking;
}

// forget drops the token, which a restarted daemon no longer takes.
export function forget(): void {
  me = null;
}

async function send(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, { ...init, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (err) {
    if (err instanceof DOMException && err.name === "AbortError") throw err;
    throw new Problem({ kind: kindAway, message: "Handler's daemon does not answer", hint: "start it again: handler web" });
  }
}

const loginProblem: ApiProblem = {
  kind: kindLogin,
  message: "this browser is not logged in any more",
  hint: "get a new link: handler web",
};

// problemOf reads an error's answer; whatever it holds, a sentence comes out.
export async function problemOf(res: Response): Promise<Problem> {
  if (res.status === 401) return new Problem(loginProblem);
  const text = await res.text().catch(() => "");
  try {
    const p = JSON.parse(text) as Partial<ApiProblem>;
    if (typeof p.message === "string" && p.message !== "") {
      return new Problem({ kind: p.kind ?? "failed", message: p.message, hint: p.hint });
    }
  } catch {
    // not JSON: said below
  }
  if (res.status === 413) return new Problem({ kind: "usage", message: "that is larger than the daemon takes", hint: "save it as a file in the agent's folder and name it in the message" });
  return new Problem({ kind: "failed", message: `the daemon answered ${res.status} without saying why`, hint: "handler doctor" });
}

async function read<T>(res: Response): Promise<T> {
  if (!res.ok) throw await problemOf(res);
  if (res.status === 204) return undefined as T;
  const text = await res.text();
  if (text === "") return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new Problem({ kind: "failed", message: "the daemon's answer is not what this page understands", hint: "reload the page: the daemon is of another version" });
  }
}

// get asks for JSON.
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return read<T>(await send("/api" + path, { method: "GET", headers: { Accept: "application/json" }, signal: signal ?? null }));
}

// change sends a state change. A token that a restarted daemon refuses is asked for anew, once.
export async function change<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return read<T>(await changing(method, path, body, signal));
}

// changeIf is change with a condition on what is there, such as If-Match.
export async function changeIf<T>(method: "PUT" | "DELETE", path: string, body: unknown, condition: Record<string, string>): Promise<T> {
  return read<T>(await changing(method, path, body, undefined, condition));
}

async function changing(method: string, path: string, body: unknown, signal?: AbortSignal, more: Record<string, string> = {}): Promise<Response> {
  for (let again = true; ; again = false) {
    const who = await whoami();
    const headers: Record<string, string> = { ...more, "Handler-Token": who.token };
    let payload: BodyInit | null = null;
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      payload = JSON.stringify(body);
    }
    const res = await send("/api" + path, { method, headers, body: payload, signal: signal ?? null });
    if ((res.status === 401 || res.status === 403) && again) {
      const p = await problemOf(res.clone());
      if (p.kind === kindLogin || /token/i.test(p.message)) {
        forget();
        continue;
      }
    }
    return res;
  }
}

// lines reads a stream of JSON, a line each, until it ends or signal aborts.
export async function lines<T>(path: string, each: (v: T) => void, signal: AbortSignal, post?: unknown): Promise<void> {
  const res = post === undefined
    ? await send("/api" + path, { method: "GET", signal })
    : await changing("POST", path, post, signal);
  if (!res.ok) throw await problemOf(res);
  if (!res.body) return;
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      rest += value;
      let end: number;
      while ((end = rest.indexOf("\n")) >= 0) {
        const line = rest.slice(0, end).trim();
        rest = rest.slice(end + 1);
        if (line !== "") each(JSON.parse(line) as T);
      }
    }
    if (rest.trim() !== "") each(JSON.parse(rest) as T);
  } catch (err) {
    if (signal.aborted) return;
    throw err;
  } finally {
    reader.cancel().catch(() => {});
  }
}

// sentence gives what happened and what to do of any error.
export function sentence(err: unknown): { what: string; remedy: string } {
  if (err instanceof Problem) return { what: err.message, remedy: err.hint };
  return { what: err instanceof Error ? err.message : String(err), remedy: "" };
}
