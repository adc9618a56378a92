// The parts of the editor that are more than a line: display, folders, addons, servers, secrets.
import { useEffect, useState } from "preact/hooks";
import { get } from "../lib/api.ts";
import type { DisplayState, Image } from "../lib/types.ts";
import { screenOf, settingOf } from "../model/display.ts";
import { at, bind, bound, network, put, screenSize, serverLimits, secretWays, type Dict, type Value } from "../model/settings.ts";
import { Icon, Switch } from "../ui/basics.tsx";
import { ScreenChoice } from "../ui/display.tsx";
import { One, Plain, type Form } from "./fields.tsx";

export interface Harness { name: string; title?: string; version?: string; secrets?: string[] | null; providers?: { name: string; url: string }[] | null }
export interface Addon {
  name: string; description?: string; default?: boolean; mcp?: boolean; placement?: string; hosts?: string[] | null;
  settings?: { name: string; description?: string; default?: string; values?: string[] | null }[] | null;
  secrets?: { name: string; description?: string; required?: boolean }[] | null;
}
export interface Preset { name: string; title?: string; rules?: string[] | null; note?: string }

// useFacts asks for what the editor offers; what cannot be had is left out, and can still be written by hand.
export function useFacts() {
  const [facts, setFacts] = useState<{ harnesses: Harness[]; addons: Addon[]; presets: Preset[]; images: Image[]; display: DisplayState | null }>({ harnesses: [], addons: [], presets: [], images: [], display: null });
  useEffect(() => {
    const none = () => null;
    void Promise.all([
      get<{ harnesses: Harness[] | null }>("/v1/harnesses").catch(none), get<{ addons: Addon[] | null }>("/v1/addons").catch(none),
      get<Preset[] | null>("/v1/presets").catch(none), get<Image[] | null>("/v1/images").catch(none), get<DisplayState>("/v1/display").catch(none),
    ]).then(([h, a, p, i, d]) => setFacts({ harnesses: h?.harnesses ?? [], addons: a?.addons ?? [], presets: p ?? [], images: i ?? [], display: d }));
  }, []);
  return facts;
}

const list = (v: Value): Dict[] => (Array.isArray(v) ? (v as Dict[]) : []);
const str = (v: Value): string => (typeof v === "string" ? v : "");

// Display is the choice of a screen, with what each gives the sandbox on this compositor.
export function Display({ form, state }: { form: Form; state: DisplayState | null }) {
  const screen = screenOf(at(form.settings, ["display"]));
  return (
    <>
      <ScreenChoice value={screen} set={(s) => form.set(["display"], settingOf(s))} state={state} />
      {screen === "vnc" ? <One form={form} f={screenSize} /> : null}
      {screen === "wayland" ? <Switch on={at(form.settings, ["display_strict"]) === true} set={(x) => form.set(["display_strict"], x ? true : undefined)} label="Only where that gives nothing but windows">A run is refused where the compositor lets the sandbox do more. Default: off.</Switch> : null}
    </>
  );
}

// Scopes are the folders that the agent sees.
export function Scopes({ form }: { form: Form }) {
  const scopes = list(at(form.settings, ["scopes"]));
  const set = (l: Dict[]) => form.set(["scopes"], l);
  return (
    <div class="field">
      {scopes.map((s, i) => (
        <div key={i} class="pair">
          <input aria-label={`folder ${i + 1}`} value={str(s["path"])} placeholder="~/src/project" spellcheck={false} list="folder-list" onInput={(e) => set(scopes.map((x, j) => (j === i ? { ...x, path: e.currentTarget.value } : x)))} />
          <select aria-label={`folder ${i + 1} is`} value={str(s["mode"]) || "rw"} onChange={(e) => set(scopes.map((x, j) => (j === i ? { ...x, mode: e.currentTarget.value } : x)))}><option value="rw">read and write</option><option value="ro">read only</option></select>
          <button type="button" class="quiet" aria-label={`Leave out folder ${i + 1}`} onClick={() => set(scopes.filter((_, j) => j !== i))}><Icon name="close" /></button>
        </div>
      ))}
      <FolderList under={str(scopes[scopes.length - 1]?.["path"])} />
      <p><button type="button" class="small" onClick={() => set([...scopes, { path: "", mode: "rw" }])}>Add a folder</button></p>
      <small>What it sees of this machine, at the same paths inside. Default: the folder that a session is started in.</small>
    </div>
  );
}

// FolderList offers the folders below what is typed so far.
function FolderList({ under }: { under: string }) {
  const [found, setFound] = useState<{ path: string; refused?: string }[]>([]);
  const dir = under.includes("/") ? under.slice(0, under.lastIndexOf("/")) : "";
  useEffect(() => {
    let gone = false;
    const q = dir && dir !== "~" && !dir.startsWith("~") ? "?" + new URLSearchParams({ under: dir }).toString() : "";
    get<{ folders?: { path: string; refused?: string }[] | null }>("/v1/folders" + q).then((f) => { if (!gone) setFound((f.folders ?? []).filter((x) => !x.refused)); }, () => {});
    return () => { gone = true; };
  }, [dir]);
  return <datalist id="folder-list">{found.slice(0, 50).map((f) => <option key={f.path} value={f.path} />)}</datalist>;
}

// Bindings are the addons, each with where it runs, its settings and secrets.
export function Bindings({ form, addons }: { form: Form; addons: Addon[] }) {
  const usual = addons.filter((a) => a.default).map((a) => a.name);
  const on = bound(form.settings, usual);
  const all = [...addons, ...on.filter((n) => !addons.some((a) => a.name === n)).map((name) => ({ name }) as Addon)];
  if (all.length === 0) return <p class="dim">There are none. handler addon list says how to get one.</p>;
  return (
    <>
      {all.map((a) => (
        <div key={a.name} class="box">
          <Switch on={on.includes(a.name)} set={(x) => form.edit(bind(form.settings, a.name, x, usual))} label={a.name}>{a.description}{a.default ? " Default: on." : ""}</Switch>
          {on.includes(a.name) ? <Binding form={writtenDown(form, a.name, usual)} a={a} /> : null}
        </div>
      ))}
    </>
  );
}

// writtenDown is form, but for its first change of a binding, which writes down those that were there by default.
function writtenDown(form: Form, name: string, usual: string[]): Form {
  if (form.settings["bindings"] !== undefined) return form;
  return { ...form, set: (path, v) => form.edit(put(bind(form.settings, name, true, usual), path, v)) };
}

function Binding({ form, a }: { form: Form; a: Addon }) {
  const path = ["bindings", a.name];
  const p = (...rest: string[]) => [...path, ...rest];
  const hosted = (str(at(form.settings, p("placement"))) || a.placement) === "hosted";
  return (
    <details><summary>Settings of {a.name}</summary>
      <div class="inner">
        {a.mcp !== false ? <One form={form} f={{ path: p("placement"), label: "Where its MCP server runs", kind: "choice", about: "Beside the agent, or hosted by Handler in a sandbox of its own, behind its checks.", choices: [["", `as the addon says: ${a.placement || "sandbox"}`], ["sandbox", "in the agent’s sandbox"], ["hosted", "hosted by Handler"]] }} /> : null}
        {hosted ? <Plain form={form} fields={[
          { path: p("tools"), label: "Only these tools", kind: "list", about: "One a line; * stands for any characters. None: all of them." },
          { path: p("deny_tools"), label: "Never these tools", kind: "list", about: "One a line." },
          ...(a.name === "playwright" ? [] : [
            ...network.slice(0, 3).map((n) => ({ ...n, path: [...path, ...n.path], label: `${n.label} (of its own sandbox)` })),
            ...serverLimits.map((l) => ({ ...l, path: [...path, ...l.path] })),
          ]), // the guarded browser goes by the agent's rules and by browser.limits
        ]} /> : <One form={form} f={{ path: p("chromium_sandbox"), label: "Chromium’s own sandbox", kind: "choice", about: "Off takes one wall away between pages and the agent’s sandbox; it is shown wherever the run is shown.", choices: [["", "on"], ["off", "off"]] }} />}
        {(a.settings ?? []).map((s) => <One key={s.name} form={form} f={{ path: p("settings", s.name), label: s.name, about: `${s.description ?? ""}${s.default ? ` Default: ${s.default}.` : ""}`, kind: (s.values ?? []).length > 0 ? "choice" : "text", choices: [["", s.default ? `${s.default}` : "nothing"], ...(s.values ?? []).map((v) => [v, v] as [string, string])], place: s.default }} />)}
        {(a.secrets ?? []).map((s) => <SecretField key={s.name} form={form} path={p("secrets", s.name)} name={s.name} about={`${s.description ?? ""}${s.required ? " It is needed." : ""}`} />)}
      </div>
    </details>
  );
}

// Servers are http and sse servers of the person's own.
export function Servers({ form }: { form: Form }) {
  const all = list(at(form.settings, ["mcp"]));
  const set = (l: Dict[]) => form.set(["mcp"], l);
  const put1 = (i: number, key: string, v: Value) => set(all.map((x, j) => (j === i ? { ...x, [key]: v } : x)));
  return (
    <div class="field">
      {all.map((s, i) => (
        <div key={i} class="pair">
          <input aria-label={`name of server ${i + 1}`} value={str(s["name"])} placeholder="name" onInput={(e) => put1(i, "name", e.currentTarget.value)} />
          <select aria-label={`kind of server ${i + 1}`} value={str(s["type"]) || "http"} onChange={(e) => put1(i, "type", e.currentTarget.value)}><option value="http">http</option><option value="sse">sse</option></select>
          <input aria-label={`address of server ${i + 1}`} value={str(s["url"])} placeholder="https://mcp.example.org/" onInput={(e) => put1(i, "url", e.currentTarget.value)} />
          <button type="button" class="quiet" aria-label={`Leave out server ${i + 1}`} onClick={() => set(all.filter((_, j) => j !== i))}><Icon name="close" /></button>
        </div>
      ))}
      <p><button type="button" class="small" onClick={() => set([...all, { name: "", type: "http", url: "" }])}>Add a server</button></p>
      <small>Reached through the proxy: its host joins the network rules. Headers can be written by hand. Default: none.</small>
    </div>
  );
}

// Presets are names for groups of hosts.
export function Presets({ form, presets }: { form: Form; presets: Preset[] }) {
  const on = (at(form.settings, ["network", "presets"]) as string[] | undefined) ?? [];
  const names = [...new Set([...presets.map((p) => p.name), ...on])];
  if (names.length === 0) return null;
  return (
    <div class="field" role="group" aria-labelledby="presets"><span class="label" id="presets">Presets</span>
      <div class="row">{names.map((n) => {
        const p = presets.find((x) => x.name === n);
        return <label key={n} class="chip" title={[p?.title, (p?.rules ?? []).join(", "), p?.note].filter(Boolean).join("\n")}><input type="checkbox" checked={on.includes(n)} onChange={(e) => form.set(["network", "presets"], e.currentTarget.checked ? [...on, n] : on.filter((x) => x !== n))} /><span>{n}</span></label>;
      })}</div>
      <small>The hosts of well-known registries and forges. Default: none.</small>
    </div>
  );
}

// SecretField says where one secret's value comes from.
function SecretField({ form, path, name, about }: { form: Form; path: string[]; name: string; about: string }) {
  const s = (at(form.settings, path) as Dict | undefined) ?? {};
  const way = secretWays.find(([k]) => s[k] !== undefined)?.[0] ?? "";
  const [chosen, setChosen] = useState(way);
  const current = way || chosen;
  const value = current === "command" ? (Array.isArray(s["command"]) ? s["command"].join(" ") : "") : str(s[current]);
  const id = "s-" + path.join("-").replace(/[^A-Za-z0-9-]/g, "_");
  const set = (w: string, v: string) => form.set(path, v === "" ? undefined : { [w]: w === "command" ? v.split(/\s+/) : v });
  return (
    <div class="field"><label for={id}>{name}</label>
      <div class="pair">
        <select aria-label={`where ${name} is kept`} value={current} onChange={(e) => { setChosen(e.currentTarget.value); set(e.currentTarget.value, ""); }}><option value="">not given</option>{secretWays.map(([k, label]) => <option key={k} value={k}>{label}</option>)}</select>
        <input id={id} disabled={current === ""} value={value} placeholder={secretWays.find(([k]) => k === current)?.[2] ?? ""} spellcheck={false} autocomplete="off" onInput={(e) => set(current, e.currentTarget.value)} />
      </div>
      <small>{about || "Where its value is found; the value itself never stands here."}</small>
    </div>
  );
}

// Secrets are those that the harness's providers name, and others by name.
export function Secrets({ form, names }: { form: Form; names: string[] }) {
  const had = Object.keys((at(form.settings, ["secrets"]) as Dict | undefined) ?? {});
  const [more, setMore] = useState<string[]>([]);
  const [name, setName] = useState("");
  const all = [...new Set([...names, ...had, ...more])];
  return (
    <>
      <p class="dim">Only where a value is found stands here. The key itself stays outside of the sandbox: Handler adds it to requests on their way out.</p>
      {all.map((n) => <SecretField key={n} form={form} path={["secrets", n]} name={n} about="" />)}
      <div class="pair"><input aria-label="name of another secret" placeholder="another name" value={name} onInput={(e) => setName(e.currentTarget.value)} /><button type="button" class="small" disabled={name.trim() === ""} onClick={() => { setMore([...more, name.trim()]); setName(""); }}>Add</button></div>
    </>
  );
}

// Upstreams change the harness's model providers.
export function Upstreams({ form, providers }: { form: Form; providers: { name: string; url: string }[] }) {
  const names = [...new Set([...providers.map((p) => p.name), ...Object.keys((at(form.settings, ["upstreams"]) as Dict | undefined) ?? {})])];
  if (names.length === 0) return <p class="dim">This harness has none that can be changed.</p>;
  return (
    <>
      {names.map((n) => (
        <details key={n}><summary>{n}</summary><div class="inner">
          <Plain form={form} fields={[
            { path: ["upstreams", n, "url"], label: "Address", kind: "text", about: "Another address that speaks the same, such as a gateway of your company’s.", place: providers.find((p) => p.name === n)?.url },
            { path: ["upstreams", n, "methods"], label: "Only these methods", kind: "list", about: "Of those that the harness lists." },
            { path: ["upstreams", n, "paths"], label: "Only these paths", kind: "list", about: "Within those that the harness lists; a trailing * stands for any rest." },
          ]} />
        </div></details>
      ))}
    </>
  );
}

// Answers are rules for the agent's own questions.
export function Answers({ form }: { form: Form }) {
  const all = list(at(form.settings, ["policy", "answers"]));
  const set = (l: Dict[]) => form.set(["policy", "answers"], l);
  const put1 = (i: number, key: string, v: string) => set(all.map((x, j) => {
    if (j !== i) return x;
    const n = { ...x, [key]: v };
    if (v === "") delete n[key];
    return n;
  }));
  const acp = ((at(form.settings, ["policy", "approvals"]) as string[] | undefined) ?? []).includes("acp");
  return (
    <>
      <Switch on={acp} set={(x) => form.set(["policy", "approvals"], x ? ["acp"] : undefined)} label="Also ask Handler’s questions in the editor">An editor may answer them without asking you. Default: off; they are asked here, in handler approvals and in the terminal.</Switch>
      <div class="field" role="group" aria-labelledby="answers"><span class="label" id="answers">Rules for the agent’s questions</span>
        {all.map((a, i) => (
          <div key={i} class="pair">
            <select aria-label={`answer of rule ${i + 1}`} value={str(a["answer"])} onChange={(e) => put1(i, "answer", e.currentTarget.value)}><option value="allow">allow, unattended</option><option value="deny">deny, always</option></select>
            <input aria-label={`tool of rule ${i + 1}`} placeholder="tool" value={str(a["tool"])} onInput={(e) => put1(i, "tool", e.currentTarget.value)} />
            <input aria-label={`kind of rule ${i + 1}`} placeholder="kind: read, edit, execute" value={str(a["kind"])} onInput={(e) => put1(i, "kind", e.currentTarget.value)} />
            <input aria-label={`title of rule ${i + 1}`} placeholder="title" value={str(a["title"])} onInput={(e) => put1(i, "title", e.currentTarget.value)} />
            <button type="button" class="quiet" aria-label={`Leave out rule ${i + 1}`} onClick={() => set(all.filter((_, j) => j !== i))}><Icon name="close" /></button>
          </div>
        ))}
        <p><button type="button" class="small" onClick={() => set([...all, { answer: "allow" }])}>Add a rule</button></p>
        <small>By the tool’s name, its kind or its title; a deny wins. Default: none.</small>
      </div>
    </>
  );
}

// Env are variables of the sandbox's environment.
export function Env({ form }: { form: Form }) {
  return <One form={form} f={{ path: ["env"], label: "Variables", kind: "pairs", about: "NAME=value, one a line. Never a secret: name those above. Default: none.", place: "TZ=Europe/Berlin" }} />;
}
