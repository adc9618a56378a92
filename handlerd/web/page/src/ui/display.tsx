// The choice of a screen: in an agent's settings, at a new session, and at one that goes on.
import { useEffect, useState } from "preact/hooks";
import { get } from "../lib/api.ts";
import type { DisplayState } from "../lib/types.ts";
import { missing, screenWords, type Screen } from "../model/display.ts";

// useDisplay asks which screens this machine has; null until it is known.
export function useDisplay(): DisplayState | null {
  const [state, setState] = useState<DisplayState | null>(null);
  useEffect(() => {
    let gone = false;
    get<DisplayState>("/v1/display").then((d) => { if (!gone) setState(d); }, () => {});
    return () => { gone = true; };
  }, []);
  return state;
}

interface Choice {
  value: Screen;
  set: (s: Screen) => void;
  state: DisplayState | null;
  own?: Screen; // what the agent's settings say, where they are not what is being chosen
}

const labels: [Screen, string][] = [
  ["none", "No screen"],
  ["wayland", "Show windows on my screen and paste images"],
  ["vnc", "A screen of the sandbox’s own"],
];

// ScreenChoice shows the three, each with what it means.
export function ScreenChoice({ value, set, state, own }: Choice) {
  const chosen = (state?.sockets ?? []).find((s) => s.path === state?.chosen);
  const about: Record<Screen, string> = {
    none: "Its browser has no window; you see the pictures that it takes.",
    wayland: chosen?.says ?? "The sandbox gets your compositor’s Wayland socket, and that alone; X11 is never shared.",
    vnc: "You watch it live on this page, and it gets nothing of your session. It needs no display on this machine.",
  };
  // A session can ask for more than the settings give, and not for less.
  const offered = labels.filter(([s]) => s !== "none" || own === undefined || own === "none");
  return (
    <fieldset class="choice"><legend>Screen</legend>
      {offered.map(([s, label]) => (
        <label key={s} class="radio">
          <input type="radio" name="screen" checked={value === s} onChange={() => set(s)} />
          <span><b>{label}</b>{s === (own ?? "none") ? <small class="tag">{own === undefined ? "default" : "as in its settings"}</small> : null}<small>{about[s]}</small></span>
        </label>
      ))}
      {value === "wayland" ? <Powers powers={chosen?.powers ?? []} /> : null}
      <NoScreen value={value} set={set} state={state} />
    </fieldset>
  );
}

function Powers({ powers }: { powers: string[] }) {
  return powers.length > 0 ? <p class="notice warning">Besides windows, a sandbox could here: {powers.join(", ")}.</p> : null;
}

// NoScreen says that the person's own screen cannot be had, and offers the other.
export function NoScreen({ value, set, state }: Choice) {
  const why = missing(state);
  if (value !== "wayland" || why === "") return null;
  return (
    <div class="notice warning" role="status">
      <p>Your screen cannot be had: {why}.</p>
      <p><button type="button" class="small" onClick={() => set("vnc")}>Use a screen of the sandbox’s own</button></p>
    </div>
  );
}

// ScreenMenu is the same choice in a line.
export function ScreenMenu({ value, set, own }: { value: Screen; set: (s: Screen) => void; own: Screen }) {
  return (
    <label class="option">Screen
      <select aria-label="Screen" value={value} onChange={(e) => set(e.currentTarget.value as Screen)}>
        {labels.filter(([s]) => s !== "none" || own === "none").map(([s]) => <option key={s} value={s}>{screenWords[s]}{s === own ? " (its setting)" : ""}</option>)}
      </select>
    </label>
  );
}
