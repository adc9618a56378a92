// What sandboxes are made of: toolboxes, addons and harnesses, and their building.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, lines, Problem } from "../lib/api.ts";
import type { Image, Progress } from "../lib/types.ts";
import { bytes, lasting } from "../model/words.ts";
import { Failure, Remedy, Skeleton, Time } from "../ui/basics.tsx";

const kinds = [["toolbox", "Toolboxes"], ["harness", "Harnesses"], ["addon", "Addons"]] as const;

export function Images() {
  const [list, setList] = useState<Image[] | null>(null);
  const [err, setErr] = useState<unknown>(null);
  const load = useCallback(() => get<Image[] | null>("/v1/images").then((l) => { setList(l ?? []); setErr(null); }, setErr), []);
  useEffect(() => void load(), [load]);
  return (
    <main class="view narrow" id="main" tabIndex={-1}>
      <header class="head"><h1>Images</h1></header>
      <p class="dim">A sandbox is a toolbox with a harness and addons mounted into it, read-only.</p>
      {err ? <Failure err={err} retry={() => void load()} /> : null}
      {!list && !err ? <Skeleton rows={5} /> : null}
      {kinds.map(([kind, title]) => {
        const of = (list ?? []).filter((i) => i.kind === kind);
        return of.length === 0 ? null : <section key={kind}><h2>{title}</h2><ul class="rows">{of.map((i) => <ImageRow key={i.name} image={i} changed={() => void load()} />)}</ul></section>;
      })}
    </main>
  );
}

function ImageRow({ image: i, changed }: { image: Image; changed: () => void }) {
  const [steps, setSteps] = useState<Progress[]>([]);
  const [busy, setBusy] = useState(false);
  const [err, setErr] = useState<unknown>(null);
  const [line, setLine] = useState("");
  const stop = useRef<AbortController | null>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const build = async () => {
    stop.current = new AbortController();
    setBusy(true);
    setErr(null);
    setSteps([]);
    try {
      await lines<Progress>("/v1/build", (p) => {
        if (p.error) throw new Problem(p.error);
        if (p.line) setLine(p.line);
        if (p.step || p.tookMillis || p.total || p.done) setSteps((l) => join(l, p));
      }, stop.current.signal, { kind: i.kind, name: i.name });
      changed();
    } catch (e) {
      setErr(e);
    }
    setBusy(false);
    setLine("");
  };
  return (
    <li class="image-row">
      <span class="about"><b>{i.name}</b><small class="dim">{i.state === "missing" ? "not built" : i.state}{i.reason ? `: ${i.reason}` : ""}{i.bytes ? ` · ${bytes(i.bytes)}` : ""}{i.created ? <> · <Time at={i.created} /></> : null}</small></span>
      {busy ? <button class="small" onClick={() => stop.current?.abort()}>Stop</button> : <button class="small" onClick={() => void build()}>{i.state === "missing" ? "Build" : "Build again"}</button>}
      {steps.length > 0 ? (
        <ol class="steps" aria-label={`building ${i.name}`}>
          {steps.map((s, n) => <li key={n}>{s.step ?? s.done}{s.total ? <progress max={s.total} value={s.bytes ?? 0} aria-label={s.step ?? "progress"} /> : null}{s.tookMillis ? <small class="dim">{lasting(s.tookMillis)}</small> : null}</li>)}
        </ol>
      ) : null}
      {line ? <pre class="now">{line.slice(0, 300)}</pre> : null}
      {err ? <Failure err={err} title="It was not built" /> : null}
      {!busy && i.remedy && i.state !== "fresh" ? <Remedy text={i.remedy} /> : null}
    </li>
  );
}

// join adds progress to its step.
export function join(steps: Progress[], p: Progress): Progress[] {
  const end = steps[steps.length - 1];
  if (p.step && p.step !== end?.step) return [...steps, p];
  if (p.done) return [...steps, p];
  return end ? [...steps.slice(0, -1), { ...end, ...p, step: end.step }] : [p];
}
