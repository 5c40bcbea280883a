// A request as a program: each language writes it in its own way.

import { dataOf } from "./elements.js";

const templates = dataOf("templates");

function asPython(value, indent = "") {
  const deeper = `${indent}    `;
  const list = (open, items, close) => (items.length ? `${open}\n${items.map((item) => `${deeper}${item},\n`).join("")}${indent}${close}` : open + close);
  if (Array.isArray(value)) return list("[", value.map((item) => asPython(item, deeper)), "]");
  if (value && typeof value === "object") {
    return list("{", Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${asPython(item, deeper)}`), "}");
  }
  return value === null ? "None" : typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value);
}

export function showProgram(request) {
  const text = JSON.stringify(request, null, 2);
  const written = { curl: `'${text.replaceAll("'", `'"'"'`)}'`, python: asPython(request), node: text };
  for (const [language, template] of Object.entries(templates)) {
    document.getElementById(`snippet-${language}`).textContent = template.replace("@REQUEST@", () => written[language]);
  }
}
