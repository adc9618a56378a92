// The files that agents made: look, download, save into a folder, remove.
import { useCallback, useEffect, useState } from "preact/hooks";
import { change, get } from "../lib/api.ts";
import type { Artifact, ArtifactList } from "../lib/types.ts";
import { artifactURL } from "../model/pictures.ts";
import { bytes } from "../model/words.ts";
import { removeArtifact, runs, said, sessions } from "../state.ts";
import { isPicture, Shot } from "../ui/artifact.tsx";
import { Dialog, Empty, Failure, Icon, Menu, Skeleton, Time } from "../ui/basics.tsx";
import { expand } from "./new.tsx";
import { me } from "../state.ts";

const previewUpTo = 64 * 1024;

// ArtifactRow is one line of a list; changed is called when it was removed.
export function ArtifactRow({ artifact: a, changed }: { artifact: Artifact; changed?: () => void }) {
  const [dialog, setDialog] = useState<"" | "save" | "text">("");
  const [err, setErr] = useState<unknown>(null);
  const [gone, setGone] = useState(false);
  const remove = () => removeArtifact(a).then(() => { setGone(true); changed?.(); }, setErr);
  if (gone) return null;
  const readable = /^(text\/|application\/json)/.test(a.type) && a.bytes > 0;
  return (
    <li class="artifact-row">
      <span class="thumb">{isPicture(a.type) ? <Shot src={artifactURL(a.id)} alt={a.name} type={a.type} bytes={a.bytes} /> : <Icon name="file" />}</span>
      <span class="about"><b>{a.name}</b><small class="dim">{bytes(a.bytes)} · {a.type.split(";")[0]} · {a.agent} · <Time at={a.created} /></small></span>
      <span class="row">
        <a class="button small" href={artifactURL(a.id)} download={a.name} aria-label={`Download ${a.name}`}>Download</a>
        <Menu label={`More about ${a.name}`}>
          {readable ? <button onClick={() => setDialog("text")}>Look</button> : null}
          <button onClick={() => setDialog("save")}>Save into a folder</button>
          <button class="danger" onClick={() => void remove()}>Remove</button>
        </Menu>
      </span>
      {err ? <Failure err={err} /> : null}
      {dialog === "save" ? <Save a={a} close={() => setDialog("")} /> : null}
      {dialog === "text" ? <Text a={a} close={() => setDialog("")} /> : null}
    </li>
  );
}

function Text({ a, close }: { a: Artifact; close: () => void }) {
  const [text, setText] = useState<string | null>(null);
  const [err, setErr] = useState<unknown>(null);
  useEffect(() => {
    const stop = new AbortController();
    fetch(artifactURL(a.id), { headers: { Range: `bytes=0-${previewUpTo - 1}` }, signal: stop.signal })
      .then((r) => (r.ok ? r.text() : Promise.reject(new Error(`it could not be read (${r.status})`))))
      .then(setText, (e) => { if (!stop.signal.aborted) setErr(e); });
    return () => stop.abort();
  }, [a.id]);
  return (
    <Dialog title={a.name} close={close} wide>
      {err ? <Failure err={err} /> : text === null ? <Skeleton /> : <pre class="file" tabIndex={0}>{text}</pre>}
      {a.bytes > previewUpTo ? <p class="dim">the first {bytes(previewUpTo)} of {bytes(a.bytes)}</p> : null}
    </Dialog>
  );
}

// Save copies an artifact into a scope that is rw.
function Save({ a, close }: { a: Artifact; close: () => void }) {
  const s = [...sessions.value.values()].find((x) => x.acp === a.session);
  const r = runs.value.get(a.run);
  const rw = (r?.scopes ?? []).filter((x) => x.mode !== "ro").map((x) => x.path);
  const [folder, setFolder] = useState(rw[0] ?? s?.cwd ?? "");
  const [name, setName] = useState(a.name);
  const [conflict, setConflict] = useState("error");
  const [err, setErr] = useState<unknown>(null);
  const save = async (e: Event) => {
    e.preventDefault();
    setErr(null);
    const f = expand(folder, me.value?.home ?? "");
    const destination = r ? { run: r.id, folder: f } : { agent: a.agent, cwd: s?.cwd ?? f, folder: f };
    try {
      const done = await change<{ path: string }>("POST", `/v1/artifacts/${encodeURIComponent(a.id)}`, { destination, name, conflict });
      said.value = `Saved ${done.path}`;
      close();
    } catch (e2) {
      setErr(e2);
    }
  };
  return (
    <Dialog title={`Save ${a.name}`} close={close}>
      <form onSubmit={save}>
        <div class="field"><label for="folder">Folder</label><input id="folder" value={folder} onInput={(e) => setFolder(e.currentTarget.value)} required spellcheck={false} /><small>It lies in a scope of {a.agent} that it may write to.</small></div>
        <div class="field"><label for="name">Name</label><input id="name" value={name} onInput={(e) => setName(e.currentTarget.value)} required spellcheck={false} /></div>
        <div class="field"><label for="conflict">Where the name is taken</label><select id="conflict" value={conflict} onChange={(e) => setConflict(e.currentTarget.value)}><option value="error">do not save</option><option value="rename">take another name</option><option value="replace">replace the file</option></select></div>
        {err ? <Failure err={err} title="It was not saved" /> : null}
        <p class="row end"><button type="button" onClick={close}>Cancel</button><button class="primary">Save</button></p>
      </form>
    </Dialog>
  );
}

export function Artifacts() {
  const [list, setList] = useState<ArtifactList | null>(null);
  const [err, setErr] = useState<unknown>(null);
  const load = useCallback(() => get<ArtifactList>("/v1/artifacts").then((l) => { setList(l); setErr(null); }, setErr), []);
  useEffect(() => void load(), [load]);
  const all = [...(list?.artifacts ?? [])].reverse();
  return (
    <main class="view" id="main" tabIndex={-1}>
      <header class="head"><h1>Artifacts</h1>{list ? <span class="dim">{bytes(list.usage.bytes)} of {bytes(list.usage.maxBytes)}, {list.usage.count} of {list.usage.maxCount} files</span> : null}</header>
      {err ? <Failure err={err} retry={() => void load()} /> : null}
      {!list && !err ? <Skeleton rows={5} /> : null}
      <ul class="rows">{all.map((a) => <ArtifactRow key={a.id} artifact={a} changed={() => void load()} />)}</ul>
      {list && all.length === 0 ? <Empty title="No artifacts yet"><p>Screenshots, PDFs and other files that an agent makes for you are kept here, apart from your folders.</p></Empty> : null}
    </main>
  );
}
