// An answer while it is received: its text, its calls of tools, its sources, and how it ended.

import { AnswerText } from "./answer_text.js";
import { askApi, eventsOf, Refused } from "./api.js";
import { addFacts } from "./cost.js";
import { keepEndInSight, make, put, say, words } from "./elements.js";
import { showFailure } from "./failure.js";
import { addCode, addLink } from "./markdown.js";

function collect(calls, deltas) {
  for (const delta of deltas) {
    const call = (calls[delta.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    call.id ||= delta.id ?? "";
    call.function.name += delta.function?.name ?? "";
    call.function.arguments += delta.function?.arguments ?? "";
  }
}

// Gives a class's side of a turn the text and the message that come. Returns whether anything came at all, and in words how it ended if
// it is not whole.
export async function receiveAnswer(side, request, parent, title, signal) {
  const text = new AnswerText(parent);
  side.text = text;
  const calls = [];
  const sources = [];
  const began = performance.now();
  let usage = null;
  let ended = "";
  let requestId = "";
  let firstAfterMs = 0;
  let failure = null;
  try {
    const answer = await askApi({ ...request, stream: true }, signal);
    requestId = answer.headers.get("x-request-id");
    for await (const chunk of eventsOf(answer.body)) {
      if (chunk.error) throw new Refused("", chunk.error, answer.headers);
      const choice = chunk.choices?.[0];
      const delta = choice?.delta ?? {};
      usage = chunk.usage ?? usage;
      ended = choice?.finish_reason ?? ended;
      if (delta.content || delta.tool_calls) firstAfterMs ||= performance.now() - began;
      if (delta.content) text.add(delta.content);
      collect(calls, delta.tool_calls ?? []);
      sources.push(...delta.annotations ?? []);
    }
  } catch (error) {
    failure = error;
  }
  text.draw();
  const isStopped = failure?.name === "AbortError";
  const isWhole = ended && !failure;
  const how = isStopped ? words.stopped : !isWhole ? words.cut : words[`ended_${ended}`] ?? "";
  const hasCome = Boolean(firstAfterMs || isWhole);
  if (failure && !isStopped) showFailure(failure, title);
  if (isWhole || text.text) side.answer = { role: "assistant", content: text.text || null };
  if (isWhole && calls.length) side.answer.tool_calls = calls;
  keepEndInSight(() => {
    if (isWhole) calls.forEach((call) => showCall(call, parent));
    if (sources.length) showSources(sources, parent);
    if (hasCome && how) put(parent, make("p", "small", how));
    if (failure && !hasCome) put(parent, make("p", "small muted", isStopped ? how : words.none));
    if (hasCome) addFacts(parent, usage, firstAfterMs, requestId);
  });
  return { how, hasCome };
}

function showCall(call, parent) {
  let given = call.function.arguments;
  try { given = JSON.stringify(JSON.parse(given), null, 2); } catch { /* shown as it came */ }
  put(parent, make("p", "call", say("calls", { name: call.function.name })));
  addCode(given, parent);
}

function showSources(annotations, parent) {
  const list = make("ul", "sources");
  list.setAttribute("aria-label", words.sources);
  for (const { url_citation: cited } of annotations) {
    const item = make("li");
    if (addLink(cited?.title || cited?.url || "", cited?.url ?? "", item)) put(list, item);
  }
  if (list.childElementCount) put(parent, list);
}
