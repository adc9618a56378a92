import { renderToString } from "preact-render-to-string";
import { describe, expect, it } from "vitest";
import { asks, missing, screenOf, settingOf, watchable, type Screen } from "../src/model/display.ts";
import { NoScreen, ScreenChoice } from "../src/ui/display.tsx";

const none = { sockets: [], problem: { message: "there is no Wayland socket", hint: "handler doctor" } };

describe("the choice of a screen", () => {
  it("reads and writes the setting", () => {
    for (const [v, s] of [[undefined, "none"], [false, "none"], ["none", "none"], [true, "wayland"], ["wayland", "wayland"], ["vnc", "vnc"], [7, "none"]] as const) expect(screenOf(v)).toBe(s);
    for (const s of ["none", "wayland", "vnc"] as Screen[]) expect(screenOf(settingOf(s))).toBe(s);
    expect(settingOf("none")).toBeUndefined();
  });

  it("asks for what the agent's own setting does not say", () => {
    expect(asks("none", "none")).toEqual({});
    expect(asks("vnc", "vnc")).toEqual({});
    expect(asks("vnc", "wayland")).toEqual({ vnc: true });
    expect(asks("wayland", "none")).toEqual({ display: true });
  });

  it("says why the person's screen cannot be had, and offers the other", () => {
    expect(missing(null)).toBe("");
    expect(missing({ chosen: "/run/user/1000/wayland-0", problem: { message: "x" } })).toBe("");
    const html = renderToString(<NoScreen value="wayland" set={() => {}} state={none} />);
    expect(html).toContain("there is no Wayland socket; handler doctor");
    expect(html).toContain("Use a screen of the sandbox’s own");
    for (const s of ["none", "vnc"] as Screen[]) expect(renderToString(<NoScreen value={s} set={() => {}} state={none} />)).toBe("");
  });

  it("offers no less than an agent's settings give", () => {
    const radios = (own?: Screen) => renderToString(<ScreenChoice value={own ?? "none"} set={() => {}} state={null} own={own} />).match(/type="radio"/g)?.length;
    expect([radios(), radios("none"), radios("vnc")]).toEqual([3, 3, 2]);
  });

  it("knows what of a run can be watched", () => {
    expect(watchable(undefined)).toEqual([]);
    expect(watchable({ browser: "headless" })).toEqual([]);
    expect(watchable({ browser: "wayland", display: "wayland" })).toEqual([]);
    expect(watchable({ browser: "vnc" })).toEqual(["display"]);
    expect(watchable({ browser: "", display: "vnc" })).toEqual(["display"]);
    expect(watchable({ browser: "guarded", display: "vnc" })).toEqual(["browser", "display"]);
  });
});
