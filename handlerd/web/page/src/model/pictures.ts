// The pictures of a tool call, wherever an agent puts them: in ACP's content, or only in rawOutput, in MCP's shape or
// Anthropic's, or below _meta. handlerd keeps pictures as artifacts and leaves "artifact:ID" in place of their bytes.

export interface Picture {
  key: string; // the same for the same picture
  src: string; // an address of this origin, or a data URL
  type: string;
  bytes: number; // 0 where it is not known
}

const shown = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);
const artifactScheme = "artifact:";
const maxDepth = 8;
const maxNodes = 5_000;

// artifactURL gives the address of an artifact's content.
export function artifactURL(id: string): string {
  return "/api/v1/artifacts/" + encodeURIComponent(id);
}

// artifactID gives the id in "artifact:ID", and "" for all else.
export function artifactID(s: unknown): string {
  if (typeof s !== "string" || !s.startsWith(artifactScheme)) return "";
  const id = s.slice(artifactScheme.length);
  return /^[A-Za-z0-9_-]{4,64}$/.test(id) ? id : "";
}

// pictureOf makes one of what stands in a data or uri field.
export function pictureOf(type: unknown, data: unknown, uri?: unknown): Picture | null {
  const id = artifactID(data) || artifactID(uri);
  const t = typeof type === "string" ? type.toLowerCase() : "";
  if (id) return { key: id, src: artifactURL(id), type: t || "image/png", bytes: 0 };
  if (!shown.has(t) || typeof data !== "string" || data === "") return null;
  if (!/^[A-Za-z0-9+/_=\s-]+$/.test(data.slice(0, 256))) return null;
  const clean = data.startsWith("data:") ? "" : data;
  if (clean === "") return null;
  const key = `${t}:${clean.length}:${clean.slice(0, 48)}:${clean.slice(-48)}`;
  return { key, src: `data:${t};base64,${clean}`, type: t, bytes: Math.floor((clean.length * 3) / 4) };
}

// pictures finds those of a tool call, each once.
export function pictures(content: unknown, rawOutput: unknown, meta?: unknown): Picture[] {
  const found = new Map<string, Picture>();
  let nodes = 0;
  const add = (p: Picture | null) => {
    if (p && !found.has(p.key)) found.set(p.key, p);
  };
  const look = (v: unknown, depth: number): void => {
    if (depth > maxDepth || typeof v !== "object" || v === null || ++nodes > maxNodes) return;
    if (Array.isArray(v)) {
      for (const e of v) look(e, depth + 1);
      return;
    }
    const o = v as Record<string, unknown>;
    if (o["type"] === "image") {
      add(pictureOf(o["mimeType"] ?? o["mime_type"] ?? o["media_type"], o["data"], o["uri"]));
      const source = o["source"];
      if (typeof source === "object" && source !== null) {
        const s = source as Record<string, unknown>;
        add(pictureOf(s["media_type"] ?? s["mimeType"], s["data"]));
      }
      return;
    }
    if (typeof o["blob"] === "string") {
      add(pictureOf(o["mimeType"], o["blob"], o["uri"]));
      return;
    }
    for (const key of Object.keys(o)) look(o[key], depth + 1);
  };
  look(content, 0);
  look(rawOutput, 0);
  if (found.size === 0) look(meta, 0);
  return [...found.values()];
}
