// What travels over the API (handlerd/api/types), as far as the page reads it. Fields that only other clients use are
// left out.

export interface Session {
  id: string;
  agent: string;
  harness: string;
  acp: string;
  cwd: string;
  title: string;
  client: "acp" | "run" | "page" | string;
  run?: string;
  lastRun: string;
  turn: "idle" | "working" | string;
  created: string;
  updated: string;
  events: number;
  continues: "" | "load" | "resume" | string;
  ours: boolean;
  questions: number;
  modes?: ModeState | null;
  options?: ConfigOption[] | null;
  commands?: Command[] | null;
  usage?: Usage | null;
  images: boolean;
  embeds: boolean;
}

export interface ModeState {
  currentModeId: string;
  availableModes: { id: string; name: string; description?: string }[];
}

export interface ConfigOption {
  id: string;
  name: string;
  description?: string;
  category?: string;
  type: "select" | "boolean" | string;
  currentValue: string | boolean;
  options?: ConfigChoice[];
}

export interface ConfigChoice {
  value?: string;
  name?: string;
  description?: string;
  group?: string;
  options?: ConfigChoice[];
}

export interface Command {
  name: string;
  description?: string;
  input?: { hint?: string } | null;
}

export interface Usage {
  used?: number;
  size?: number;
  cost?: { amount?: number; currency?: string } | null;
}

export interface HandlerEvent {
  seq: number;
  time: string;
  kind: string;
  update?: string;
  data: unknown;
}

export interface ApiProblem {
  kind: string;
  message: string;
  hint?: string;
}

export interface ContentBlock {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  uri?: string;
  name?: string;
  title?: string;
  size?: number;
  resource?: { uri?: string; text?: string; blob?: string; mimeType?: string };
}

export interface Limit {
  value: number;
  enforced: boolean;
  by?: string;
}

// Part is a run's browser or hosted server, which has a sandbox of its own.
export interface Part {
  kind: "browser" | "server";
  name: string;
  sandbox: string;
  memoryBytes: number;
  memoryLimit: Limit;
}

export interface Run {
  id: string;
  agent: string;
  harness: string;
  state: string;
  turn: string;
  since: string;
  scopes: { path: string; mode: string }[] | null;
  browser: string;
  hosts: number;
  asks?: boolean;
  notices: string[] | null;
  toolCalls: number;
  allowed: number;
  refused: number;
  failed: number;
  traffic: { host: string; requests: number; sent: number; received: number }[] | null;
  parts?: Part[] | null;
  memoryBytes: number;
  memoryLimit: Limit;
  processes: number;
  processLimit: Limit;
  display?: string; // "wayland", "vnc" or none
}

export interface Approval {
  id: string;
  kind: "network" | "browser" | string;
  run: string;
  agent: string;
  session?: string;
  subject: string;
  text: string;
  detail: string;
  scopes: string[] | null;
  waiting: number;
  asked: string;
  expires: string;
  browser?: BrowserApproval;
}

export interface BrowserApproval {
  tool: string;
  action: string;
  visit: boolean;
  pages: Place[] | null;
  title?: string;
  says?: string;
  frame?: Place;
  targets: Place[] | null;
  elements: { role: string; name: string }[] | null;
  values: string[] | null;
  more?: number;
  digest: string;
  picture?: { width: number; height: number; bytes: number };
}

export interface Place {
  site: string;
  url: string;
}

export interface ApprovalEvent {
  state: "watching" | "asked" | "answered" | "expired" | "withdrawn" | string;
  approval?: Approval;
  answer?: ApprovalAnswer;
}

export interface ApprovalAnswer {
  allow: boolean;
  scope: string;
  by?: string;
}

export interface Artifact {
  id: string;
  run: string;
  session?: string;
  agent: string;
  name: string;
  source?: string;
  type: string;
  bytes: number;
  sha256: string;
  created: string;
  path: string;
}

export interface ArtifactList {
  artifacts: Artifact[] | null;
  usage: { count: number; maxCount: number; bytes: number; maxBytes: number };
}

export interface Verdict {
  time: string;
  run?: string;
  agent: string;
  kind: string;
  rule?: string;
  verdict?: string;
  subject: string;
  reason: string;
  hint?: string;
}

export interface LiveRule {
  kind: string;
  rule: string;
  by: string;
  scope?: string;
}

export interface Finding {
  id: string;
  level: "ok" | "remark" | "problem" | string;
  title: string;
  detail?: string;
  remedy?: string[];
}

export interface Image {
  kind: string;
  name: string;
  state: "fresh" | "stale" | "missing" | string;
  reason?: string;
  bytes?: number;
  created?: string;
  remedy?: string;
}

export interface Progress {
  step?: string;
  line?: string;
  bytes?: number;
  total?: number;
  tookMillis?: number;
  done?: string;
  error?: ApiProblem;
}

export interface Change {
  session?: Session;
  removed?: string;
  run?: Run;
  ended?: string;
  approval?: ApprovalEvent;
  agents?: boolean;
}

export interface Me {
  token: string;
  version: string;
  user: string;
  home: string;
}

// ViewRequest says what of a run is to be seen: the display that it has to itself, or the guarded browser.
export interface ViewRequest {
  what: "display" | "browser";
}

export interface ViewTicket {
  ticket: string;
  path: string;
  expires: string;
  viewOnly: boolean;
  says: string;
}

export interface Takeover {
  on: boolean;
  ticket?: ViewTicket;
  idleSeconds?: number;
  says: string;
}

export interface DisplayState {
  sockets?: { path: string; says: string; powers?: string[] | null }[] | null;
  chosen?: string;
  problem?: { message: string; hint?: string };
}
