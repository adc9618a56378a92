// The languages that agents write most; the rest is shown without colours.
import { createLowlight } from "lowlight";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import makefile from "highlight.js/lib/languages/makefile";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const low = createLowlight({ bash, c, css, diff, go, ini, java, javascript, json, makefile, python, rust, sql, typescript, xml, yaml });
low.registerAlias({ bash: ["sh", "shell", "zsh", "console"], ini: ["toml"], typescript: ["tsx", "mts"], javascript: ["jsx", "mjs"], c: ["cpp", "h"], xml: ["html", "svg", "vue"] });

// colour gives text's tree of marked spans; null where the language is not known.
export function colour(text: string, lang: string) {
  const name = lang.toLowerCase();
  if (!low.registered(name)) return null;
  return low.highlight(name, text) as unknown as { type: string };
}
