// The editor of an agent: every setting in the order of the file, each with a line of meaning and its default, beside it
// the file as it will be. Whoever would rather write the file does that in the same place.
import { useEffect, useRef, useState } from "preact/hooks";
import { change, changeIf, get, Problem } from "../lib/api.ts";
import { loadAgents } from "../agents.ts";
import { at, browser, limits, network, policy, put, type AgentCheck, type AgentDetail, type AgentError, type Dict } from "../model/settings.ts";
import { agents } from "../agents.ts";
import { go, said } from "../state.ts";
import { Dialog, Failure, Menu, Skeleton } from "../ui/basics.tsx";
import { Plain, type Form } from "./fields.tsx";
import { Bindings, Display, Env, Presets, Scopes, Secrets, Servers, Upstreams, Answers, useFacts } from "./parts.tsx";

const checkAfter = 250;

// AgentEditor edits the agent of a name, or makes one where it is "".
export function AgentEditor({ name }: { name: string }) {
  const [detail, setDetail] = useState<AgentDetail | null>(null);
  const [err, setErr] = useState<unknown>(null);
  const load = () => {
    setErr(null);
    if (name === "") {
      const harness = agents.value.find((a) => !a.file)?.name ?? "claude-code";
      setDetail({ name: "", etag: "", settings: { harness }, toml: "", defaults: null, errors: [] });
      return;
    }
    get<AgentDetail>(`/v1/agents/${encodeURIComponent(name)}`).then(setDetail, setErr);
  };
  useEffect(load, [name]);
  if (err) return <main class="view" id="main" tabIndex={-1}><Failure err={err} title="This agent cannot be shown" retry={load} /></main>;
  if (!detail) return <main class="view" id="main" tabIndex={-1}><Skeleton rows={8} /></main>;
  return <Editor key={detail.etag} detail={detail} />;
}

function Editor({ detail }: { detail: AgentDetail }) {
  const facts = useFacts();
  const fresh = !detail.file;
  const [name, setName] = useState(detail.file ? detail.name : "");
  const [settings, setSettings] = useState<Dict>(detail.settings ?? {});
  const [text, setText] = useState<string | null>(detail.settings ? null : detail.toml); // the file, while it is written by hand
  const [check, setCheck] = useState<AgentCheck | null>(null);
  const [err, setErr] = useState<unknown>(null);
  const [checkErr, setCheckErr] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [remove, setRemove] = useState(false);
  const touched = useRef(false);

  // The daemon says what the settings come to, shortly after the last key.
  useEffect(() => {
    const stop = new AbortController();
    const t = setTimeout(() => {
      const edit = { name: name || "new", ...(text === null ? { settings } : { toml: text }) };
      change<AgentCheck>("POST", "/v1/agents/check", edit, stop.signal).then((c) => { setCheck(c); setCheckErr(null); }, (e) => { if (!stop.signal.aborted) setCheckErr(e); });
    }, checkAfter);
    return () => {
      clearTimeout(t);
      stop.abort();
    };
  }, [settings, text, name]);

  const edit = (d: Dict) => {
    touched.current = true;
    setSettings(d);
  };
  const form: Form = { settings, defaults: detail.defaults, set: (path, v) => edit(put(settings, path, v)), edit };
  const save = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setErr(null);
    try {
      const body = text === null ? { settings } : { toml: text };
      await changeIf("PUT", `/v1/agents/${encodeURIComponent(name)}`, body, fresh ? { "If-None-Match": "*" } : { "If-Match": detail.etag });
      said.value = `${name} is saved`;
      await loadAgents();
      touched.current = false;
      go(`#/new?agent=${encodeURIComponent(name)}`);
    } catch (e2) {
      setErr(e2);
      setBusy(false);
    }
  };
  const errors = check?.errors ?? [];
  return (
    <main class="view" id="main" tabIndex={-1}>
      <form onSubmit={save}>
        <header class="head">
          <h1>{fresh ? "New agent" : detail.name}</h1>
          {fresh ? null : <a class="button" href={`#/new?agent=${encodeURIComponent(detail.name)}`}>Talk to it</a>}
          {fresh ? null : <Menu label="More about this agent"><button type="button" class="danger" onClick={() => setRemove(true)}>Delete</button></Menu>}
          <button class="primary" disabled={busy || name === "" || errors.length > 0}>{busy ? "Saving…" : "Save"}</button>
        </header>
        {err ? <Failure err={err instanceof Problem && err.kind === "conflict" ? new Problem({ kind: "conflict", message: "the file was changed elsewhere since you opened it", hint: "reload the page to see it; what you typed here is lost then" }) : err} title="It was not saved" /> : null}
        <div class="editor">
          <div>
            {text === null ? <Parts form={form} name={name} setName={setName} fresh={fresh} facts={facts} /> : (
              <div class="field"><label for="toml">The file</label>
                <textarea id="toml" class="mono" rows={30} value={text} spellcheck={false} onInput={(e) => setText(e.currentTarget.value)} />
                <small>Comments are kept as you write them.</small>
              </div>
            )}
          </div>
          <aside class="preview" aria-label="the file as it will be">
            <p class="row"><b>{name || "NAME"}.toml</b>
              {text === null ? <button type="button" class="small quiet" onClick={() => setText(touched.current || !detail.file ? check?.toml ?? detail.toml : detail.toml)}>Write it by hand</button>
                : <button type="button" class="small quiet" disabled={!check?.settings} onClick={() => { if (check?.settings) { setSettings(check.settings); setText(null); } }}>Back to the form</button>}
            </p>
            {text === null ? <pre tabIndex={0} aria-label="TOML">{check?.toml ?? detail.toml}</pre> : null}
            {checkErr ? <Failure err={checkErr} title="It could not be checked" /> : null}
            <Errors list={errors} />
            {(check?.notices ?? []).map((n, i) => <p key={i} class="notice">{n}</p>)}
            {check && errors.length === 0 ? <p class="past" role="status">It can be saved.</p> : null}
          </aside>
        </div>
      </form>
      {remove ? <Remove detail={detail} close={() => setRemove(false)} /> : null}
    </main>
  );
}

function Errors({ list }: { list: AgentError[] }) {
  return (
    <>
      {list.map((e, i) => <div key={i} class="failure" role="alert"><p>{e.line ? `line ${e.line}: ` : ""}{e.message}</p>{e.hint ? <p class="remedy">{e.hint}</p> : null}</div>)}
    </>
  );
}

interface PartsProps {
  form: Form;
  name: string;
  setName: (n: string) => void;
  fresh: boolean;
  facts: ReturnType<typeof useFacts>;
}

function Parts({ form, name, setName, fresh, facts }: PartsProps) {
  const { settings, set } = form;
  const harness = String(at(settings, ["harness"]) ?? "");
  const toolboxes = facts.images.filter((i) => i.kind === "toolbox");
  return (
    <>
      <div class="field"><label for="name">Name</label><input id="name" value={name} disabled={!fresh} required pattern="[a-z0-9][a-z0-9-]*" maxLength={63} onInput={(e) => setName(e.currentTarget.value)} autocomplete="off" spellcheck={false} placeholder="web" /><small>Small letters, digits and hyphens: what you type after handler run.</small></div>
      <div class="field"><label for="harness">Harness</label>
        <select id="harness" value={harness} onChange={(e) => set(["harness"], e.currentTarget.value)}>
          {facts.harnesses.some((h) => h.name === harness) ? null : <option value={harness}>{harness}</option>}
          {facts.harnesses.map((h) => <option key={h.name} value={h.name}>{h.title || h.name}{h.version ? ` ${h.version}` : ""}</option>)}
        </select>
        <small>Which agent program it is.</small></div>
      <div class="field"><label for="description">Description</label><input id="description" value={String(at(settings, ["description"]) ?? "")} onInput={(e) => set(["description"], e.currentTarget.value)} maxLength={200} /><small>A line for the lists.</small></div>
      <div class="field"><label for="toolbox">Toolbox</label>
        <select id="toolbox" value={String(at(settings, ["toolbox"]) ?? "")} onChange={(e) => set(["toolbox"], e.currentTarget.value)}>
          <option value="">the default one</option>
          {toolboxes.filter((t) => t.name !== "default").map((t) => <option key={t.name} value={t.name}>{t.name}</option>)}
        </select>
        <small>What the sandbox has: Chromium, fonts, Node, git and what you added.</small></div>
      <Display form={form} state={facts.display} />
      <fieldset><legend>Folders</legend><Scopes form={form} /></fieldset>
      <fieldset><legend>Addons</legend><Bindings form={form} addons={facts.addons} /></fieldset>
      <fieldset><legend>MCP servers of your own</legend><Servers form={form} /></fieldset>
      <fieldset><legend>Network</legend><Plain form={form} fields={network} /><Presets form={form} presets={facts.presets} /></fieldset>
      <fieldset><legend>Guarded browser</legend><Plain form={form} fields={browser} /></fieldset>
      <fieldset><legend>Limits</legend><div class="two"><Plain form={form} fields={limits} /></div></fieldset>
      <fieldset><legend>Permissions</legend><Plain form={form} fields={policy} /><Answers form={form} /></fieldset>
      <fieldset><legend>Secrets</legend><Secrets form={form} names={facts.harnesses.find((h) => h.name === harness)?.secrets ?? []} /></fieldset>
      <fieldset><legend>Model providers</legend><Upstreams form={form} providers={facts.harnesses.find((h) => h.name === harness)?.providers ?? []} /></fieldset>
      <fieldset><legend>Environment</legend><Env form={form} /></fieldset>
    </>
  );
}

function Remove({ detail, close }: { detail: AgentDetail; close: () => void }) {
  const [err, setErr] = useState<unknown>(null);
  const remove = async () => {
    try {
      await changeIf("DELETE", `/v1/agents/${encodeURIComponent(detail.name)}`, undefined, { "If-Match": detail.etag });
      await loadAgents();
      go("#/agents");
    } catch (e) {
      setErr(e);
    }
  };
  return (
    <Dialog title={`Delete ${detail.name}`} close={close}>
      <p>The file {detail.file} is removed. Sessions, artifacts and what the agent did in your folders stay.</p>
      {err ? <Failure err={err} /> : null}
      <p class="row end"><button onClick={close}>Keep it</button><button class="danger" onClick={() => void remove()}>Delete</button></p>
    </Dialog>
  );
}
