// An agent's settings as the editor handles them: the keys of its TOML file as JSON, in the file's order, each with a line
// of meaning. What the keys come to, and whether it can be saved, is the daemon's to say.

// An agent in the lists of the page.
export interface AgentInfo {
  name: string;
  harness?: string;
  description?: string;
  scopes?: string[] | null;
  display?: boolean;
  displayMode?: string; // "none", "wayland" or "vnc"
  file?: string; // none: a harness under its own name
  problem?: string;
}

export interface AgentError {
  message: string;
  hint?: string;
  line?: number;
  column?: number;
}

export interface AgentDetail extends AgentInfo {
  etag: string;
  settings: Dict | null;
  toml: string;
  defaults: Dict | null;
  errors: AgentError[] | null;
}

export interface AgentCheck {
  toml: string;
  settings: Dict | null;
  errors: AgentError[] | null;
  notices: string[] | null;
}

export type Value = string | number | boolean | null | Value[] | Dict | undefined;
export interface Dict {
  [key: string]: Value;
}

// at gives the value at a path, undefined where there is none.
export function at(d: Dict | null | undefined, path: string[]): Value {
  let v: Value = d ?? undefined;
  for (const key of path) {
    if (typeof v !== "object" || v === null || Array.isArray(v)) return undefined;
    v = v[key];
  }
  return v;
}

const empty = (v: Value): boolean =>
  v === undefined || v === null || v === "" || (Array.isArray(v) && v.length === 0) || (typeof v === "object" && !Array.isArray(v) && Object.keys(v).length === 0);

// put gives the settings with a value at a path; an empty value takes the key out, and tables that hold nothing then. A
// binding that says nothing is still a binding, and a list of none is not the usual list: those stay.
export function put(d: Dict, path: string[], value: Value, depth = 0): Dict {
  const key = path[depth];
  if (key === undefined) return d;
  const next = { ...d };
  const inner = d[key];
  const v = depth === path.length - 1 ? value : put(typeof inner === "object" && inner !== null && !Array.isArray(inner) ? inner : {}, path, value, depth + 1);
  const stays = path[0] === "bindings" && depth < 2 && depth < path.length - 1;
  if (empty(v) && !stays) delete next[key];
  else next[key] = v;
  return next;
}

// bind adds an addon to the bindings or takes it out. The first change writes down those that were there by default.
export function bind(d: Dict, name: string, on: boolean, defaults: string[]): Dict {
  const had = d["bindings"];
  const all: Dict = typeof had === "object" && had !== null && !Array.isArray(had) ? { ...had } : Object.fromEntries(defaults.map((n) => [n, {}]));
  if (on) all[name] = all[name] ?? {};
  else delete all[name];
  return { ...d, bindings: all };
}

// bound gives the addons that are bound: those named, or the defaults where nothing is.
export function bound(d: Dict, defaults: string[]): string[] {
  const b = d["bindings"];
  return typeof b === "object" && b !== null && !Array.isArray(b) ? Object.keys(b).sort() : defaults;
}

// lines reads a list that is written a line each.
export function lines(text: string): string[] {
  return text.split("\n").map((l) => l.trim()).filter((l) => l !== "");
}

// pairs reads NAME=VALUE, a line each; a line without "=" is a name of nothing.
export function pairs(text: string): Record<string, string> {
  const out: Record<string, string> = {};
  for (const l of lines(text)) {
    const i = l.indexOf("=");
    out[i < 0 ? l : l.slice(0, i).trim()] = i < 0 ? "" : l.slice(i + 1).trim();
  }
  return out;
}

// unpairs writes them.
export function unpairs(v: Value): string {
  if (typeof v !== "object" || v === null || Array.isArray(v)) return "";
  return Object.entries(v).map(([k, x]) => `${k}=${String(x)}`).join("\n");
}

export interface Field {
  path: string[];
  label: string;
  about: string;
  kind: "text" | "number" | "flag" | "choice" | "list" | "pairs";
  choices?: [value: string, label: string][];
  place?: string; // an example
  usual?: boolean; // of a flag: it is on where nothing is said
}

const f = (path: string, label: string, kind: Field["kind"], about: string, more: Partial<Field> = {}): Field => ({ path: path.split("."), label, kind, about, ...more });

// screenSize is that of a screen of the sandbox's own.
export const screenSize: Field = f("display_size", "Its size", "text", "In pixels, WIDTHxHEIGHT, from 320x240 to 3840x2160.", { place: "1280x800" });

// The plain fields of each part, in the order of the file.
export const network: Field[] = [
  f("network.allow", "Allow", "list", "Hosts that it may reach, one a line: host, *.suffix, host:port, or METHODS http://host/path*", { place: "registry.example.org\n*.example.com:8443" }),
  f("network.deny", "Deny", "list", "Never reached, whatever allows them. The same forms, and METHODS upstream/NAME/path*", { place: "tracker.example.com" }),
  f("network.private", "Private addresses", "list", "Addresses of your own network, with a port: address:port or prefix:port", { place: "10.0.0.5:8080" }),
  f("network.unknown", "A host that no rule names", "choice", "What happens when it asks for one.", { choices: [["", "is refused"], ["ask", "is asked about, here and in the terminal"]] }),
];

export const browser: Field[] = [
  f("browser.network", "Pages may come from", "choice", "Of the guarded browser, which handlerd serves and which runs in a sandbox of its own.", { choices: [["", "every public host"], ["rules", "the network rules above"]] }),
  f("browser.read_only", "Pages are read and never acted on", "flag", "Clicking and typing is refused without a question."),
  f("browser.view", "It can be watched", "flag", "It gets a screen of its own, which takes 50 MB.", { usual: true }),
  f("browser.lifetime", "Life in unattended runs", "text", "How long a browser lives where nobody is there; at most 15m.", { place: "5m" }),
  f("browser.search", "Search page", "text", "The address that browser_search opens, with %s in place of the words.", { place: "https://search.example.org/?q=%s" }),
  f("browser.limits.memory", "Memory of its sandbox", "text", "More ends it, and the next call starts a new one.", { place: "2GiB" }),
  f("browser.limits.processes", "Processes and threads", "number", "How many there may be.", { place: "1024" }),
  f("browser.limits.tmp", "/tmp of its sandbox", "text", "Its profile and shared memory.", { place: "512MiB" }),
  f("browser.limits.files", "Files", "text", "Downloads, PDFs and uploads together.", { place: "512MiB" }),
  f("browser.limits.idle", "Idle", "text", "Time without a call after which it is closed, where somebody is there.", { place: "30m" }),
];

// Of a hosted server that has a sandbox of its own; their paths begin at its binding.
export const serverLimits: Field[] = [
  f("limits.memory", "Memory of its sandbox", "text", "More ends it, and the next call starts a new one.", { place: "1GiB" }),
  f("limits.processes", "Processes and threads", "number", "How many there may be.", { place: "512" }),
  f("limits.tmp", "/tmp of its sandbox", "text", "Bytes of temporary files.", { place: "256MiB" }),
  f("limits.home", "Home folder of its sandbox", "text", "Bytes of its home folder.", { place: "256MiB" }),
  f("limits.shm", "Shared memory", "text", "Bytes of /dev/shm.", { place: "64MiB" }),
  f("limits.call_time", "Time of a call", "text", "A call that takes longer is ended.", { place: "5m" }),
  f("limits.idle", "Idle", "text", "Time without a call after which it is ended.", { place: "30m" }),
  f("limits.lifetime", "Life", "text", "When it is ended in any case; the next call starts it afresh.", { place: "12h" }),
  f("limits.results", "Size of a result", "text", "Of one text, and of structured content; the whole becomes an artifact.", { place: "256KiB" }),
];

export const limits: Field[] = [
  f("limits.memory", "Memory", "text", "Of the whole sandbox; over it, it is ended.", { place: "4GiB" }),
  f("limits.cpus", "Processors", "number", "How many it may use at once.", { place: "2" }),
  f("limits.processes", "Processes", "number", "How many there may be.", { place: "512" }),
  f("limits.tmp", "/tmp", "text", "Bytes of temporary files.", { place: "1GiB" }),
  f("limits.home", "Home folder", "text", "Bytes of its home folder.", { place: "1GiB" }),
  f("limits.shm", "Shared memory", "text", "Bytes of /dev/shm, which browsers use.", { place: "1GiB" }),
  f("limits.state", "State folders", "text", "Bytes that it keeps between runs, such as logins and transcripts; or none.", { place: "10GiB" }),
  f("limits.lifetime", "Life of a run", "text", "When a run is ended in any case; or none.", { place: "none" }),
  f("limits.idle", "Idle", "text", "When a run without a message is ended; or none.", { place: "24h" }),
];

export const policy: Field[] = [
  f("policy.client_mcp", "An editor's own MCP servers", "choice", "Servers that an editor hands to the agent run inside the sandbox.", { choices: [["", "are let in"], ["deny", "are refused"]] }),
  f("policy.unattended", "Where nobody is there", "choice", "How the agent's own questions are answered in unattended runs.", { choices: [["", "refuse"], ["reads", "allow what calls itself a read"], ["allow", "allow, once each"]] }),
  f("policy.host_fs", "Read and write files through the editor", "flag", "The editor then reads and writes for the agent, inside the scopes; a file may change between check and use."),
  f("policy.host_terminal", "Run commands through the editor", "flag", "Commands then run outside of the sandbox, with all that you may do. Only where you trust the agent as you trust yourself."),
];

// The ways in which a secret's value is found; the value itself never stands in a file of Handler's.
export const secretWays: [key: string, label: string, place: string][] = [
  ["pass", "password store", "api/anthropic"],
  ["secret_service_label", "keyring, by its label", "Anthropic key"],
  ["file", "file (mode 0600)", "~/.secrets/anthropic"],
  ["credential", "systemd credential", "anthropic"],
  ["command", "command that prints it", "op read op://x/y"],
];
