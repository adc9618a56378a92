// The forms that an agent may ask its person to fill in: flat JSON schemas, as the protocol allows.

export interface Field {
  name: string;
  type: string;
  title: string;
  description: string;
  choices: { value: string; label: string }[];
  required: boolean;
  initial: string | boolean;
  least?: number; // of a number, or of the characters of a text
  most?: number;
}

// Values are what a person has typed, by the fields' names: those are the agent's, and may be any.
export type Values = ReadonlyMap<string, string | boolean>;

type Dict = Record<string, unknown>;
const dict = (v: unknown): Dict => (typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Dict) : {});
const list = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);
const str = (v: unknown): string => (typeof v === "string" ? v : "");
const num = (v: unknown): number | undefined => (typeof v === "number" ? v : undefined);

// fields reads the flat schemas that the protocol allows, as the daemon reads them, which refuses what has a wrong shape. A
// field of a type that nobody here can ask for is left out.
export function fields(schema: unknown): Field[] {
  const s = dict(schema);
  const required = list(s["required"]);
  const out: Field[] = [];
  for (const [name, value] of Object.entries(dict(s["properties"]))) {
    const p = dict(value);
    const type = str(p["type"]);
    if (!["string", "boolean", "number", "integer"].includes(type)) continue;
    const names = list(p["enumNames"]);
    const oneOf = list(p["oneOf"]).map(dict).map((o) => ({ value: str(o["const"]), label: str(o["title"]) || str(o["const"]) }));
    const listed = list(p["enum"]).map((v, i) => ({ value: str(v), label: str(names[i]) || str(v) }));
    const initial = p["default"];
    const text = type === "string";
    out.push({
      name, type,
      title: str(p["title"]) || name,
      description: str(p["description"]),
      choices: oneOf.length > 0 ? oneOf : listed,
      required: required.includes(name),
      initial: type === "boolean" ? initial === true : ["string", "number"].includes(typeof initial) ? String(initial) : "",
      least: num(p[text ? "minLength" : "minimum"]),
      most: num(p[text ? "maxLength" : "maximum"]),
    });
  }
  return out;
}

// content gives the answer as the schema's types want it.
export function content(fs: Field[], values: Values): Record<string, unknown> {
  const out: [string, unknown][] = [];
  for (const f of fs) {
    const v = values.get(f.name) ?? f.initial;
    if (f.type === "boolean") out.push([f.name, v === true]);
    else if (v === "" && !f.required) continue;
    else if (f.type === "number" || f.type === "integer") out.push([f.name, Number(v)]);
    else out.push([f.name, v]);
  }
  return Object.fromEntries(out);
}
