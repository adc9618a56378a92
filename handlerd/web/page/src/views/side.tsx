// The right column of a session: the browser, files, network and the sandbox's own web servers. It remembers its tab.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Session } from "../lib/types.ts";
import type { Followed } from "../session.ts";
import { bytes, lasting } from "../model/words.ts";
import { approvalsOf, now, readRun, runs } from "../state.ts";
import { Empty, Icon } from "../ui/basics.tsx";
import { ApprovalCard, QuestionCard } from "../ui/cards.tsx";
import { ArtifactRow } from "./artifacts.tsx";
import { NetworkOf } from "./network.tsx";
import { Browser } from "./browser.tsx";
import { Preview } from "./preview.tsx";

const tabs = ["Browser", "Files", "Network", "Preview"] as const;
type Tab = (typeof tabs)[number];

function remembered(id: string): Tab {
  try {
    const t = sessionStorage.getItem("tab:" + id) as Tab | null;
    return t && tabs.includes(t) ? t : "Browser";
  } catch {
    return "Browser";
  }
}

// Side shows it for s.
export function Side({ s, followed, close }: { s: Session; followed: Followed; close: () => void }) {
  const tab = useSignal<Tab>(remembered(s.id));
  useEffect(() => {
    tab.value = remembered(s.id);
  }, [s.id]);
  const choose = (t: Tab) => {
    tab.value = t;
    try {
      sessionStorage.setItem("tab:" + s.id, t);
    } catch {
      // forbidden: it is forgotten
    }
  };
  const keys = (e: KeyboardEvent) => {
    const d = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (d === 0) return;
    const next = tabs[(tabs.indexOf(tab.value) + d + tabs.length) % tabs.length]!;
    choose(next);
    document.getElementById("tab-" + next)?.focus();
  };
  return (
    <aside class="side" aria-label="Browser, files and network">
      <header class="bar">
        <div class="tabs" role="tablist" onKeyDown={keys}>
          {tabs.map((t) => (
            <button key={t} id={"tab-" + t} role="tab" aria-selected={tab.value === t} aria-controls="tab-panel" tabIndex={tab.value === t ? 0 : -1} onClick={() => choose(t)}>{t}</button>
          ))}
        </div>
        <button class="quiet" aria-label="Close this column" onClick={close}><Icon name="close" /></button>
      </header>
      <div class="panel" id="tab-panel" role="tabpanel" aria-labelledby={"tab-" + tab.value} tabIndex={0}>
        {tab.value === "Browser" ? <Browser s={s} followed={followed} /> : null}
        {tab.value === "Files" ? <Files s={s} followed={followed} /> : null}
        {tab.value === "Network" ? <NetworkOf agent={s.agent} run={s.run ?? s.lastRun} live={s.run !== undefined && s.run !== ""} /> : null}
        {tab.value === "Preview" ? <Preview s={s} /> : null}
      </div>
      <Pinned s={s} followed={followed} />
      <RunFacts s={s} />
    </aside>
  );
}

// Pinned shows what needs the person once more, where it does not scroll away.
function Pinned({ s, followed }: { s: Session; followed: Followed }) {
  followed.version.value;
  const as = approvalsOf(s);
  const qs = followed.conversation.open().filter((i) => i.kind === "question" && i.question.ours);
  if (as.length + qs.length === 0) return null;
  return (
    <section class="pinned" aria-label="Needs you">
      <h2>Needs you</h2>
      {as.map((a) => <ApprovalCard key={a.id} approval={a} />)}
      {qs.map((i) => (i.kind === "question" ? <QuestionCard key={i.key} question={i.question} session={s.id} agent={s.agent} /> : null))}
    </section>
  );
}

function Files({ s, followed }: { s: Session; followed: Followed }) {
  followed.version.value;
  const all = followed.conversation.artifacts();
  if (all.length === 0) return <Empty title="No files yet"><p>What {s.agent} makes for you, such as screenshots and PDFs, stands here and can be saved into your folders.</p></Empty>;
  return <ul class="rows">{all.map((a) => <ArtifactRow key={a.id} artifact={a} />)}</ul>;
}

// RunFacts says what the sandbox takes and may take.
function RunFacts({ s }: { s: Session }) {
  const r = s.run ? runs.value.get(s.run) : undefined;
  useEffect(() => {
    if (!s.run) return;
    const look = () => {
      if (document.visibilityState === "visible") void readRun(s.run!);
    };
    look();
    const t = setInterval(look, 4_000);
    return () => clearInterval(t);
  }, [s.run]);
  if (!r) return null;
  const bound = (v: string, max: number, text: (n: number) => string) => (max > 0 ? `${v} of ${text(max)}` : v);
  return (
    <section class="runfacts" aria-label="The run">
      <dl>
        <div><dt>run</dt><dd><code>{r.id}</code> {lasting(now.value - Date.parse(r.since))}</dd></div>
        <div><dt>memory</dt><dd>{bound(bytes(r.memoryBytes), r.memoryLimit.value, bytes)}</dd></div>
        {(r.parts ?? []).map((p) => <div key={p.sandbox}><dt>{p.kind === "browser" ? "browser" : `server ${p.name}`}</dt><dd>{bound(bytes(p.memoryBytes), p.memoryLimit.value, bytes)}</dd></div>)}
        <div><dt>processes</dt><dd>{bound(String(r.processes), r.processLimit.value, String)}</dd></div>
        <div><dt>network</dt><dd>{r.allowed} allowed, {r.refused} refused</dd></div>
      </dl>
      {(r.notices ?? []).map((n, i) => <p key={i} class="notice">{n}</p>)}
    </section>
  );
}
