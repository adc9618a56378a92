// On which screen a sandbox's windows are: what an agent's settings say of it, and what a session asks for.
import type { DisplayState } from "../lib/types.ts";
import type { Value } from "./settings.ts";

export type Screen = "none" | "wayland" | "vnc";

// screenOf reads the setting: true and "wayland" are the person's own screen.
export function screenOf(v: Value): Screen {
  if (v === true || v === "wayland" || v === "true") return "wayland";
  return v === "vnc" ? "vnc" : "none";
}

// settingOf writes it: nothing where it is the default.
export function settingOf(s: Screen): Value {
  return s === "none" ? undefined : s === "wayland" ? true : "vnc";
}

// asks gives the part of a request for a session or a run; with neither, the agent's own setting counts.
export function asks(s: Screen, own: Screen): { display?: boolean; vnc?: boolean } {
  if (s === own || s === "none") return {};
  return s === "wayland" ? { display: true } : { vnc: true };
}

// missing says why the person's own screen cannot be had; "" where it can, or where nothing is known.
export function missing(state: DisplayState | null): string {
  if (!state || state.chosen || !state.problem) return "";
  return state.problem.message + (state.problem.hint ? `; ${state.problem.hint}` : "");
}

export const screenWords: Record<Screen, string> = {
  none: "no screen",
  wayland: "my screen",
  vnc: "a screen of the sandbox’s own",
};

// watchable gives what of a run can be watched here, the likelier first.
export function watchable(r: { browser: string; display?: string } | undefined): ("browser" | "display")[] {
  if (!r) return [];
  const out: ("browser" | "display")[] = [];
  if (r.browser === "guarded") out.push("browser");
  if (r.browser === "vnc" || r.display === "vnc") out.push("display");
  return out;
}
