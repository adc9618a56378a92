// The items of a conversation.
import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { change } from "../lib/api.ts";
import type { ContentBlock, Verdict } from "../lib/types.ts";
import type { Item, ItemOf } from "../model/conversation.ts";
import { pictureOf } from "../model/pictures.ts";
import { bytes, lasting, one } from "../model/words.ts";
import { runs, said } from "../state.ts";
import { ArtifactChip, isPicture, Shot } from "./artifact.tsx";
import { Failure, Icon, Remedy, Time } from "./basics.tsx";
import { ApprovalCard, QuestionCard } from "./cards.tsx";
import { Markdown } from "./markdown.tsx";
import { Tool } from "./tool.tsx";
import { artifactURL } from "../model/pictures.ts";

const foldUser = 6_000;

// ItemView shows one item of a session of agent.
export const ItemView = memo(function ItemView({ item, session, agent, streaming }: { item: Item; session: string; agent: string; streaming: boolean }) {
  switch (item.kind) {
    case "user":
      return <UserMessage item={item} />;
    case "agent":
      return (
        <article class="msg agent" aria-label={`${agent} says`}>
          <Markdown text={item.text} />
          {item.pictures.length > 0 ? <div class="shots">{item.pictures.map((p) => <Shot key={p.key} src={p.src} alt={`picture from ${agent}`} type={p.type} bytes={p.bytes} />)}</div> : null}
          {item.links.map((l) => <p key={l.uri} class="dim"><Icon name="file" /> {l.name || l.uri}</p>)}
          {streaming ? <span class="caret" aria-hidden="true" /> : null}
        </article>
      );
    case "thought":
      return <Thought item={item} streaming={streaming} />;
    case "tool":
      return <Tool call={item.call} />;
    case "plan":
      return <Plan item={item} />;
    case "question":
      return item.question.open
        ? <QuestionCard question={item.question} session={session} agent={agent} />
        : <p class="past"><Icon name="check" /> {item.question.tool?.title || String(item.question.params["message"] ?? "a question")}: <b>{item.question.answer}</b>{item.question.by && item.question.by !== "the page" ? ` (${item.question.by})` : ""}</p>;
    case "approval":
      return item.state === "asked" ? <ApprovalCard approval={item.approval} /> : <PastApproval item={item} />;
    case "artifact":
      return <ArtifactItem item={item} />;
    case "refused":
      return <Refused verdict={item.verdict} times={item.times} />;
    case "turn":
      return <Turn item={item} agent={agent} />;
    case "run":
      return <RunItem item={item} />;
    case "notice":
      return <p class={`notice ${item.level}`}>{item.text}</p>;
    case "cut":
      return <p class="notice warning">{one(item.events, "event")} left out: {item.reason}</p>;
  }
});

function UserMessage({ item }: { item: ItemOf<"user"> }) {
  return (
    <article class="msg user" aria-label="You said">
      <div class="bubble">
        {item.blocks.map((b, i) => <Block key={i} b={b} />)}
        {item.cut ? <p class="dim">the rest of it is not kept</p> : null}
      </div>
    </article>
  );
}

function Block({ b }: { b: ContentBlock }) {
  const [open, setOpen] = useState(false);
  if (b.type === "text") {
    const text = b.text ?? "";
    if (text.length <= foldUser || open) return <p class="typed">{text}</p>;
    return <><p class="typed">{text.slice(0, foldUser)}…</p><button class="fold" onClick={() => setOpen(true)}>all of it ({bytes(text.length)})</button></>;
  }
  if (b.type === "image") {
    const p = pictureOf(b.mimeType, b.data, b.uri);
    return p ? <div class="shots"><Shot src={p.src} alt="picture that you sent" type={p.type} bytes={p.bytes} /></div> : <p class="dim">[a picture, {b.mimeType ?? "of an unknown kind"}, that is not kept]</p>;
  }
  const name = b.title || b.name || b.resource?.uri || b.uri || b.type;
  return <span class="chip"><Icon name="file" /><span>{name.replace(/^file:\/\//, "")}</span></span>;
}

function Thought({ item, streaming }: { item: ItemOf<"thought">; streaming: boolean }) {
  const [open, setOpen] = useState(false);
  const line = item.text.trim().split("\n").pop() ?? "";
  return (
    <div class="thought">
      <button class="line" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={open ? "down" : "right"} /><span class="what">Thinking</span><span class="about">{open ? "" : line.slice(0, 200)}</span>{streaming ? <span class="mark">…</span> : null}
      </button>
      {open ? <Markdown text={item.text} /> : null}
    </div>
  );
}

function Plan({ item }: { item: ItemOf<"plan"> }) {
  const done = item.entries.filter((e) => e.status === "completed").length;
  const word: Record<string, string> = { completed: "done", in_progress: "now", pending: "to do" };
  return (
    <section class="plan" aria-label={`plan, ${done} of ${item.entries.length} done`}>
      <header>Plan <small>{done} of {item.entries.length}</small></header>
      <ol>
        {item.entries.map((e, i) => (
          <li key={i} class={e.status}><i aria-hidden="true" /><span>{e.content}</span><span class="sr">{word[e.status] ?? e.status}</span></li>
        ))}
      </ol>
    </section>
  );
}

function PastApproval({ item }: { item: ItemOf<"approval"> }) {
  const how = item.state === "answered" ? (item.answer?.allow ? "allowed" : "refused") : item.state === "expired" ? "nobody answered in time" : "not needed any more";
  const scope = item.answer?.allow && item.answer.scope && item.answer.scope !== "once" ? (item.answer.scope === "run" ? " for this run" : " for good") : "";
  return <p class="past"><Icon name="check" /> {item.approval.text}: <b>{how}{scope}</b>{item.answer?.by && item.answer.by !== "the page" ? ` (${item.answer.by})` : ""}</p>;
}

function ArtifactItem({ item }: { item: ItemOf<"artifact"> }) {
  const a = item.artifact;
  if (item.removed) return <p class="past">{a.name} was removed</p>;
  return (
    <div class="made">
      {isPicture(a.type) ? <div class="shots"><Shot src={artifactURL(a.id)} alt={a.name} type={a.type} bytes={a.bytes} /></div> : null}
      <ArtifactChip artifact={a} />
    </div>
  );
}

// Refused shows the rule and a button for the remedy.
export function Refused({ verdict: v, times }: { verdict: Verdict; times: number }) {
  const [done, setDone] = useState("");
  const [err, setErr] = useState<unknown>(null);
  const host = v.kind === "network" ? v.subject : "";
  const live = v.run !== undefined && runs.value.has(v.run);
  const allow = async (scope: string) => {
    setErr(null);
    try {
      await change("POST", "/v1/rules", { agent: v.agent, run: scope === "always" ? undefined : v.run, kind: "allow", rule: host, scope });
      setDone(scope === "once" ? "allowed once: the next connection" : scope === "run" ? "allowed for this run" : "always allowed");
      said.value = `${host} is allowed`;
    } catch (e) {
      setErr(e);
    }
  };
  return (
    <div class="refused">
      <p><b>{v.rule ? `refused by ${v.rule}` : "refused"}</b>{times > 1 ? ` ${times} times` : ""}: {v.subject} <span class="dim">{v.reason}</span></p>
      {done ? <p class="past"><Icon name="check" /> {done}</p> : host !== "" ? (
        <p class="row">
          {live ? <button class="small" onClick={() => allow("once")}>Allow once</button> : null}
          {live ? <button class="small" onClick={() => allow("run")}>For this run</button> : null}
          <button class="small quiet" onClick={() => allow("always")}>Always</button>
        </p>
      ) : null}
      {v.hint && !done ? <Remedy text={v.hint} /> : null}
      {err ? <Failure err={err} /> : null}
    </div>
  );
}

const stops: Record<string, string> = {
  cancelled: "stopped",
  max_tokens: "ended at the most tokens of one answer",
  max_turn_requests: "ended at the most requests of one turn",
  refusal: "the model refused to go on",
};

function Turn({ item, agent }: { item: ItemOf<"turn">; agent: string }) {
  if (item.error) {
    return <div class="failure" role="alert"><strong>{agent} could not finish</strong><p>{item.error.message}</p>{item.error.hint ? <Remedy text={item.error.hint} /> : null}</div>;
  }
  const parts = [(stops[item.stop] ?? "done") + (lasting(item.took) && ` in ${lasting(item.took)}`), item.calls > 0 ? one(item.calls, "tool call") : ""].filter((p) => p !== "");
  return <p class="turn"><span>{parts.join(" · ")}</span> <Time at={item.time} /></p>;
}

function RunItem({ item }: { item: ItemOf<"run"> }) {
  if (item.error) return <div class="failure" role="alert"><strong>The run ended</strong><p>{item.error.message}</p>{item.error.hint ? <Remedy text={item.error.hint} /> : null}</div>;
  return <p class="turn"><span>{item.state === "ended" ? "the sandbox is gone" : "in a fresh sandbox"}</span> <Time at={item.time} /></p>;
}
