import { describe, expect, it } from "vitest";
import { base64, blocksOf, bounds, check, textOf } from "../src/model/attach.ts";
import { compare, fold } from "../src/model/diff.ts";
import { format, parse, type Route } from "../src/model/route.ts";
import { at, bind, bound, lines, pairs, put, unpairs } from "../src/model/settings.ts";
import { ago, bytes, count, lasting, left, money, one, tilde } from "../src/model/words.ts";
import { content, fields } from "../src/model/schema.ts";

describe("words", () => {
  it("have units", () => {
    expect([0, 999, 1000, 88_000, 312e6, 2e9, -1].map(bytes)).toEqual(["0 B", "999 B", "1 kB", "88 kB", "312 MB", "2 GB", "–"]);
    expect([7, 1000, 41_200, 200_000, 1_500_000].map(count)).toEqual(["7", "1k", "41k", "200k", "1.5M"]);
    expect([600, 41_000, 125_000, 120_000, 7_500_000, NaN].map(lasting)).toEqual(["0.6 s", "41 s", "2 min 5 s", "2 min", "2 h 5 min", ""]);
    const now = Date.parse("2026-01-02T00:00:00Z");
    expect(ago("2026-01-01T23:56:00Z", now)).toBe("4 min ago");
    expect(ago("2025-11-01T00:00:00Z", now)).toBe("2025-11-01");
    expect(ago("rubbish", now)).toBe("");
    expect(left("2026-01-02T00:01:42Z", now)).toBe("1:42");
    expect(left("2026-01-01T00:00:00Z", now)).toBe("0:00");
    expect(money(0.1234, "USD")).toBe("$0.12");
    expect(money(0.0012, "EUR")).toBe("€0.0012");
    expect(tilde("/home/ana/x", "/home/ana")).toBe("~/x");
    expect(tilde("/home/anabel", "/home/ana")).toBe("/home/anabel");
    expect([one(1, "file"), one(3, "file")]).toEqual(["1 file", "3 files"]);
  });
});

describe("routes", () => {
  const all: Route[] = [
    { view: "home" }, { view: "new" }, { view: "new", agent: "a b/c?" }, { view: "sessions" }, { view: "session", id: "k/3?f#9" }, { view: "agents" },
    { view: "agent", name: "new" }, { view: "agent", name: "", fresh: true }, { view: "approvals" }, { view: "network" }, { view: "artifacts" }, { view: "doctor" }, { view: "images" },
  ];
  it.each(all)("come back as they were: %j", (r) => expect(parse(format(r))).toEqual(r));
  it.each(["", "#", "#/nothing", "#/s/%zz", "#/agents/of/"])("take %j", (h) => expect(parse(h).view).toBeTruthy());
});

describe("diffs", () => {
  it("number the lines", () => {
    const d = compare("a\nb\nc\n", "a\nB\nc\n");
    expect([d.added, d.removed, d.whole]).toEqual([1, 1, true]);
    expect(d.lines.filter((l) => l.sign !== " ")).toEqual([{ sign: "-", text: "b", old: 2, now: 0 }, { sign: "+", text: "B", old: 0, now: 2 }]);
  });
  it("of a new file add all", () => expect(compare("", "x\ny\n").added).toBe(2));
  it("too large to compare say so", () => expect(compare("a\n".repeat(400_000), "b\n".repeat(400_000)).whole).toBe(false));
  it("fold long text", () => {
    const f = fold(Array.from({ length: 10_000 }, (_, i) => `line ${i}`).join("\n"), 40);
    expect(f.hidden).toBe(9_960);
    expect(f.shown.split("\n")).toHaveLength(40);
    expect(fold("a\nb\n", 2)).toEqual({ shown: "a\nb\n", hidden: 0 });
  });
});

describe("attachments", () => {
  const to = { agent: "web", images: true, embeds: true, cwd: "/src" };
  const file = (name: string, size: number, type = "image/png") => ({ name, size, type });
  it("are bounded before they are read, with what to do instead", () => {
    expect(check([file("a.png", 1000)], [], to)).toBe("");
    expect(check([file("a.png", 50e6)], [], to)).toMatch(/50 MB.*5\.2 MB.*Save it in \/src/);
    expect(check([file("a.bin", 50e6, "")], [], to)).toMatch(/Save it in/);
    expect(check([file("a.png", 10)], [], { ...to, images: false })).toMatch(/takes no pictures/);
    expect(check([file("a.txt", 10, "text/plain")], [], { ...to, embeds: false })).toMatch(/takes no files/);
    expect(check([file("a", 0)], [], to)).toMatch(/empty/);
    expect(check(Array.from({ length: bounds.count + 1 }, () => file("a.png", 1)), [], to)).toMatch(/would be 11/);
    expect(check([file("a.png", 5e6), file("b.png", 5e6), file("c.png", 5e6)], [], to)).toMatch(/together/);
  });
  it("become what the protocol has", () => {
    expect(blocksOf(" hi \n", [])).toEqual([{ type: "text", text: " hi" }]);
    expect(blocksOf("  ", [])).toEqual([]);
    expect(textOf(new Uint8Array([0x68, 0x69]))).toBe("hi");
    expect(textOf(new Uint8Array([0xff, 0xfe]))).toBeNull();
    expect(textOf(new Uint8Array([0x68, 0]))).toBeNull();
    expect(base64(new Uint8Array(100_000)).length).toBe(133_336);
  });
});

describe("settings", () => {
  it("are put in and taken out, with the tables that are empty then", () => {
    let d = put({}, ["network", "allow"], ["a"]);
    expect(at(d, ["network", "allow"])).toEqual(["a"]);
    d = put(d, ["network", "allow"], []);
    expect(d).toEqual({});
    expect(put({ a: 1 }, ["b", "c", "d"], undefined)).toEqual({ a: 1 });
    expect(at({ a: "x" }, ["a", "b"])).toBeUndefined();
  });
  it("keep a binding that says nothing", () => {
    expect(put({ bindings: { playwright: { placement: "hosted" } } }, ["bindings", "playwright", "placement"], "")).toEqual({ bindings: { playwright: {} } });
  });
  it("write the default addons down at the first change", () => {
    expect(bound({}, ["playwright"])).toEqual(["playwright"]);
    expect(bind({}, "x", true, ["playwright"])).toEqual({ bindings: { playwright: {}, x: {} } });
    expect(bind({}, "playwright", false, ["playwright"])).toEqual({ bindings: {} });
    expect(bound({ bindings: {} }, ["playwright"])).toEqual([]);
  });
  it("read lists and pairs a line each", () => {
    expect(lines(" a \n\n b")).toEqual(["a", "b"]);
    expect(pairs("A=1\nB = x=y\nC")).toEqual({ A: "1", B: "x=y", C: "" });
    expect(unpairs({ A: "1", B: "2" })).toBe("A=1\nB=2");
  });
});

describe("an elicitation's form", () => {
  const schema = { properties: { n: { type: "integer", default: 3 }, b: { type: "boolean" }, s: { type: "string", enum: ["x", "y"], enumNames: ["X"] }, o: {} }, required: ["s"] };
  it("has the schema's fields", () => {
    expect(fields(schema).map((f) => [f.name, f.type, f.required, f.initial])).toEqual([["n", "integer", false, "3"], ["b", "boolean", false, false], ["s", "string", true, ""]]);
    expect(fields(schema)[2]!.choices).toEqual([{ value: "x", label: "X", about: "" }, { value: "y", label: "y", about: "" }]);
    expect(fields(undefined)).toEqual([]);
  });
  it("answers in the schema's types", () => expect(content(fields(schema), new Map([["s", "x"]]))).toEqual({ n: 3, b: false, s: "x" }));
  it("has choices of which several can be ticked", () => {
    const fs = fields({ properties: { m: { type: "array", maxItems: 2, default: ["L", 3], items: { anyOf: [{ const: "S", title: "small", description: "cheap" }, { const: "L" }] } }, free: { type: "array" } }, required: ["m"] });
    expect(fs).toHaveLength(1);
    expect(fs[0]).toMatchObject({ most: 2, initial: ["L"], choices: [{ value: "S", label: "small", about: "cheap" }, { value: "L", label: "L", about: "" }] });
    expect(content(fs, new Map([["m", ["S"]]]))).toEqual({ m: ["S"] });
    expect(content([{ ...fs[0]!, required: false, initial: [] }], new Map())).toEqual({});
  });
  it("takes any name and shape that an agent thinks of", () => {
    const hostile = JSON.parse('{"properties":{"__proto__":{"type":"string","title":7,"default":{"a":1},"enum":"x"},"constructor":{"type":"boolean"},"toString":{"type":"number","oneOf":[null,3]},"x":"string","y":null},"required":"x"}') as unknown;
    const fs = fields(hostile);
    expect(fs.map((f) => [f.name, f.title, f.initial])).toEqual([["__proto__", "__proto__", ""], ["constructor", "constructor", false], ["toString", "toString", ""]]);
    expect(JSON.stringify(content(fs, new Map([["__proto__", "p"], ["toString", "4"]])))).toBe('{"__proto__":"p","constructor":false,"toString":4}');
    expect(fields([1]).concat(fields("x"), fields({ properties: [1] }))).toEqual([]);
  });
});
