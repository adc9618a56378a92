// A daemon that is not one, for work on the page alone (npm run dev): it speaks the API as far as the views use it, over
// made-up sessions. Nothing of it is in the built page.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Plugin } from "vite";
import * as data from "./data.ts";
import * as screen from "./screen.ts";

const started = Date.now();

// fakeDaemon answers /api in Vite's development server.
export function fakeDaemon(): Plugin {
  return {
    name: "fake-daemon",
    apply: "serve",
    configureServer(server) {
      const world = data.world();
      server.httpServer?.on("upgrade", (req, socket) => {
        if (req.url?.startsWith("/api/v1/view")) screen.serve(req, socket);
      });
      server.middlewares.use("/api", (req, res) => {
        void answer(world, req, res).catch((err: unknown) => json(res, 500, { kind: "failed", message: String(err) }));
      });
    },
  };
}

function json(res: ServerResponse, status: number, body: unknown): void {
  res.writeHead(status, { "Content-Type": "application/json" });
  res.end(JSON.stringify(body));
}

async function body(req: IncomingMessage): Promise<Record<string, unknown>> {
  let text = "";
  for await (const piece of req) text += piece;
  return text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
}

function stream(res: ServerResponse): (v: unknown) => void {
  res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  res.write(": here\n\n");
  return (v) => void res.write(`data: ${JSON.stringify(v)}\n\n`);
}

async function answer(w: data.World, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const url = new URL(req.url ?? "/", "http://x");
  const path = url.pathname;
  const q = url.searchParams;
  const m = req.method ?? "GET";
  if (path === "/me") return json(res, 200, { token: "t", version: "dev", user: "ana", home: "/home/ana" });
  if (m !== "GET" && m !== "HEAD" && req.headers["handler-token"] !== "t") return json(res, 403, { kind: "refused", message: "the token is missing" });
  if (path === "/v1/feed") {
    const send = stream(res);
    w.feeds.add(send);
    req.on("close", () => w.feeds.delete(send));
    return;
  }
  if (path === "/v1/sessions" && m === "GET") {
    const s = (q.get("query") ?? "").toLowerCase();
    return json(res, 200, [...w.sessions.values()].map((x) => x.session).filter((x) => `${x.title} ${x.agent} ${x.cwd}`.toLowerCase().includes(s)));
  }
  if (path === "/v1/sessions" && m === "POST") return json(res, 200, data.begin(w, await body(req)));
  const one = /^\/v1\/sessions\/([^/]+)(?:\/(\w+))?$/.exec(path);
  if (one) return session(w, decodeURIComponent(one[1]!), one[2] ?? "", m, q, req, res);
  if (path === "/v1/runs") return json(res, 200, [...w.runs.values()]);
  if (path === "/v1/approvals") return json(res, 200, [...w.approvals.values()]);
  const ap = /^\/v1\/approvals\/([^/]+)(\/picture)?$/.exec(path);
  if (ap && ap[2]) return picture(res);
  if (ap && m === "POST") return json(res, 200, data.decide(w, ap[1]!, await body(req)));
  if (/^\/v1\/artifacts\/[^/]+$/.test(path) && m === "GET") return picture(res);
  const seen = /^\/v1\/runs\/([^/]+)\/(view|still|takeover)$/.exec(path);
  if (seen && m === "POST") return view(w, seen[1]!, seen[2]!, await body(req), res);
  const oneRun = /^\/v1\/runs\/([^/]+)$/.exec(path);
  if (oneRun && m === "GET" && w.runs.has(oneRun[1]!)) return json(res, 200, w.runs.get(oneRun[1]!));
  const fixed = data.fixed(path, m);
  if (fixed !== undefined) return json(res, 200, fixed);
  if (path === "/v1/verdicts") {
    res.writeHead(200, { "Content-Type": "application/x-ndjson" });
    for (const v of data.verdicts) res.write(JSON.stringify(v) + "\n");
    return;
  }
  if (path === "/v1/rules") return json(res, 200, { ...(await body(req)), runs: [] });
  json(res, 404, { kind: "not-found", message: `the API has no ${m} ${path}` });
}

let taken = false;
let opens = 0; // when the made-up guarded browser does

function view(w: data.World, run: string, what: string, b: Record<string, unknown>, res: ServerResponse): void {
  if (!w.runs.has(run)) return json(res, 404, { kind: "not-found", message: `there is no run ${run}`, hint: "handler ps" });
  opens ||= Date.now() + 4_000;
  if (what !== "takeover" && b["what"] === "browser" && Date.now() < opens) return json(res, 500, { kind: "failed", message: `no browser of run ${run} is open`, hint: "it opens with the agent's first page" });
  if (what === "view") return json(res, 200, screen.ticket(false, "The agent has this display to itself, and may show what it likes on it."));
  if (what === "still") return json(res, 200, { id: "art00002", run, agent: "web", name: "display-101112.png", type: "image/png", bytes: 12_000, sha256: "", created: new Date().toISOString(), path: "/x" });
  if (b["on"] !== true) return json(res, 200, { on: false, says: "The agent has its browser again." });
  if (taken) return json(res, 403, { kind: "refused", message: "another page has taken this browser over since 2 min ago", hint: "give it back there, or close that page" });
  taken = true;
  json(res, 200, { on: true, idleSeconds: 1_800, says: "You have the browser of web; its browser tools are refused until you give it back.", ticket: screen.ticket(true, "", () => (taken = false)) });
}

function picture(res: ServerResponse): void {
  res.writeHead(200, { "Content-Type": "image/png" });
  res.end(Buffer.from(data.png, "base64"));
}

async function session(w: data.World, id: string, what: string, m: string, q: URLSearchParams, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const s = w.sessions.get(id);
  if (!s) return json(res, 404, { kind: "not-found", message: `there is no session ${id}`, hint: "handler sessions list" });
  if (what === "" && m === "GET") return json(res, 200, s.session);
  if (what === "" && m === "DELETE") {
    w.sessions.delete(id);
    data.tell(w, { removed: id });
    return json(res, 200, {});
  }
  if (what === "events") {
    const send = stream(res);
    for (const ev of s.events) if (ev.seq > Number(q.get("after") ?? 0)) send(ev);
    s.followers.add(send);
    req.on("close", () => s.followers.delete(send));
    return;
  }
  const b = await body(req);
  if (what === "prompt") return json(res, 200, { seq: data.prompt(w, s, b) });
  if (what === "cancel") data.cancel(w, s);
  if (what === "answer") data.answered(w, s, b);
  if (what === "title") s.session.title = String(b["title"]) || "untitled";
  if (what === "continue") Object.assign(s.session, { ours: true, run: "r9", client: "page" });
  if (what === "option") data.option(s, b);
  if (what === "end") delete s.session.run;
  s.session.updated = new Date().toISOString();
  data.tell(w, { session: s.session });
  json(res, 200, what === "continue" ? s.session : {});
}

export const uptime = () => Date.now() - started;
