import { describe, expect, it } from "vitest";
import { artifactID, pictureOf, pictures } from "../src/model/pictures.ts";

const data = "iVBORw0KGgo=";
const mcp = { type: "image", data, mimeType: "image/png" };

describe("the pictures of a tool call", () => {
  it.each([
    ["claude, opencode: content", [{ type: "content", content: mcp }], undefined, undefined],
    ["codex: rawOutput.result.content", undefined, { result: { content: [mcp] } }, undefined],
    ["pi: rawOutput.content", undefined, { content: [mcp] }, undefined],
    ["Anthropic's shape", undefined, [{ type: "image", source: { type: "base64", media_type: "image/png", data } }], undefined],
    ["an embedded resource", [{ type: "content", content: { type: "resource", resource: { uri: "x", blob: data, mimeType: "image/png" } } }], undefined, undefined],
    ["only below _meta", undefined, undefined, { claudeCode: { toolResponse: [mcp] } }],
    ["the same three times", [{ type: "content", content: mcp }], { content: [mcp] }, { claudeCode: { toolResponse: [mcp] } }],
  ])("%s", (_, content, raw, meta) => {
    const found = pictures(content, raw, meta);
    expect(found).toHaveLength(1);
    expect(found[0]!.src).toBe("data:image/png;base64," + data);
  });

  it("may be artifacts by now", () => {
    expect(pictures([{ type: "content", content: { type: "image", data: "artifact:ab12cd34", mimeType: "image/png" } }], null)[0]!.src).toBe("/api/v1/artifacts/ab12cd34");
    expect(artifactID("artifact:../../x")).toBe("");
    expect(artifactID(7)).toBe("");
  });

  it("are never what a browser might run or fetch", () => {
    expect(pictureOf("image/svg+xml", "PHN2Zz4=")).toBeNull();
    expect(pictureOf("text/html", data)).toBeNull();
    expect(pictureOf("image/png", "https://example.org/x.png")).toBeNull();
    expect(pictureOf("image/png", 'x" onerror="alert(1)')).toBeNull();
  });

  it("are looked for within bounds", () => {
    let deep: unknown = mcp;
    for (let i = 0; i < 50; i++) deep = { content: deep };
    expect(pictures(deep, null)).toHaveLength(0);
    const ring: Record<string, unknown> = {};
    ring["content"] = [ring, ring, ring];
    expect(pictures(ring, ring)).toHaveLength(0);
  });
});
