// The forms that an agent may ask its person to fill in: flat JSON schemas, as the protocol allows.

export interface Field {
  name: string;
  type: string;
  title: string;
  description: string;
  choices: { value: string; label: string; about: string }[];
  required: boolean;
  initial: Value;
  least?: number; // of a number, of the characters of a text, or of the values of an array
  most?: number;
}

// A Value is what a field holds: of an array, those of its choices that are ticked.
export type Value = string | boolean | readonly string[];

// Values are what a person has typed, by the fields' names: those are the agent's, and may be any.
export type Values = ReadonlyMap<string, Value>;

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
    if (!["string", "boolean", "number", "integer", "array"].includes(type)) continue;
    const choices = choicesOf(type === "array" ? dict(p["items"]) : p);
    if (type === "array" && choices.length === 0) continue;
    const [least, most] = type === "string" ? ["minLength", "maxLength"] : type === "array" ? ["minItems", "maxItems"] : ["minimum", "maximum"];
    out.push({
      name, type,
      title: str(p["title"]) || name,
      description: str(p["description"]),
      choices,
      required: required.includes(name),
      initial: initialOf(type, p["default"]),
      least: num(p[least!]),
      most: num(p[most!]),
    });
  }
  return out;
}

function choicesOf(p: Dict): Field["choices"] {
  const names = list(p["enumNames"]);
  const constants = [...list(p["anyOf"]), ...list(p["oneOf"])].map(dict).map((o) => ({ value: str(o["const"]), label: str(o["title"]) || str(o["const"]), about: str(o["description"]) }));
  return constants.length > 0 ? constants : list(p["enum"]).map((v, i) => ({ value: str(v), label: str(names[i]) || str(v), about: "" }));
}

function initialOf(type: string, v: unknown): Value {
  if (type === "boolean") return v === true;
  if (type === "array") return list(v).filter((x): x is string => typeof x === "string");
  return typeof v === "string" || typeof v === "number" ? String(v) : "";
}

// content gives the answer as the schema's types want it.
export function content(fs: Field[], values: Values): Record<string, unknown> {
  const out: [string, unknown][] = [];
  for (const f of fs) {
    const v = values.get(f.name) ?? f.initial;
    if (f.type === "boolean") out.push([f.name, v === true]);
    else if (Array.isArray(v) && v.length === 0 && !f.required) continue;
    else if (v === "" && !f.required) continue;
    else if (f.type === "number" || f.type === "integer") out.push([f.name, Number(v)]);
    else out.push([f.name, v]);
  }
  return Object.fromEntries(out);
}
