// The request that the fields of the page and a conversation make.

import { fields, make, part, say, words } from "./elements.js";

// The classes that are asked: one, or two side by side.
export const models = () => [fields.model.value, fields.other.value].filter(Boolean);

// Reads the tools and says what is wrong with them; none: they cannot be sent.
export function readTools() {
  const given = fields.tools.value.trim();
  const state = part("tools-state");
  let parsed = [];
  let problem = "";
  try {
    parsed = given ? JSON.parse(given) : [];
    if (!Array.isArray(parsed)) problem = words.badTools;
  } catch (error) {
    problem = say("badJson", { problem: error.message });
  }
  fields.tools.setAttribute("aria-invalid", String(problem !== ""));
  state.className = problem ? "problem" : "hint";
  const names = problem ? [] : parsed.map((tool) => tool?.function?.name ?? "?");
  state.textContent = problem || (names.length ? say("goodTools", { names: names.join(", ") }) : "");
  offerChoices(names);
  return problem ? null : parsed;
}

// After those that every list of tools has, a choice for each of its functions.
function offerChoices(names) {
  const choice = fields.tool_choice;
  const chosen = choice.value;
  const general = [...choice.options].filter((option) => !option.dataset.function);
  choice.replaceChildren(...general, ...names.map((name) => {
    const option = make("option", "", name);
    option.dataset.function = name;
    option.value = `function ${name}`;
    return option;
  }));
  choice.value = chosen;
  if (choice.selectedIndex < 0) choice.selectedIndex = 0;
}

export function requestFor(model, said) {
  const system = fields.system.value.trim();
  const request = { model, messages: [...(system ? [{ role: "system", content: system }] : []), ...said] };
  for (const name of ["temperature", "max_tokens"]) {
    if (fields[name].value) request[name] = Number(fields[name].value);
  }
  if (fields.response_format.value) request.response_format = { type: fields.response_format.value };
  const tools = readTools() ?? [];
  if (tools.length) {
    request.tools = tools;
    const [choice] = fields.tool_choice.selectedOptions;
    const name = choice.dataset.function;
    if (choice.value) request.tool_choice = name ? { type: "function", function: { name } } : choice.value;
  }
  return request;
}
