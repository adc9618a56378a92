// The forms that an agent may ask its person to fill in: flat JSON schemas, as the protocol allows.

export interface Field {
  name: string;
  type: string;
  title: string;
  description: string;
  choices: { value: string; label: string }[];
  required: boolean;
  initial: string | boolean;
}

// fields reads the flat schemas that the protocol allows; what it does not know is a line of text.
export function fields(schema: unknown): Field[] {
  const s = (schema ?? {}) as { properties?: Record<string, Record<string, unknown>>; required?: string[] };
  return Object.entries(s.properties ?? {}).slice(0, 40).map(([name, p]) => {
    const names = (p["enumNames"] as string[] | undefined) ?? [];
    const listed = ((p["enum"] as unknown[] | undefined) ?? []).map((v, i) => ({ value: String(v), label: names[i] ?? String(v) }));
    const oneOf = ((p["oneOf"] as { const?: unknown; title?: string }[] | undefined) ?? []).map((o) => ({ value: String(o.const), label: o.title ?? String(o.const) }));
    const type = String(p["type"] ?? "string");
    const dflt = p["default"];
    return {
      name, type,
      title: String(p["title"] ?? name),
      description: String(p["description"] ?? ""),
      choices: listed.length > 0 ? listed : oneOf,
      required: s.required?.includes(name) ?? false,
      initial: type === "boolean" ? dflt === true : dflt === undefined ? "" : String(dflt),
    };
  });
}

// content gives the answer as the schema's types want it.
export function content(fs: Field[], values: Record<string, string | boolean>): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const f of fs) {
    const v = values[f.name] ?? f.initial;
    if (f.type === "boolean") out[f.name] = v === true;
    else if (v === "" && !f.required) continue;
    else if (f.type === "number" || f.type === "integer") out[f.name] = Number(v);
    else out[f.name] = v;
  }
  return out;
}
