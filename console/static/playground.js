// The playground: a conversation between this page and the API, with a token that ends with the sign-in. The console is asked for
// tokens and for what a request cost, and never sees a message. Nothing is stored. Answers become text and elements, never HTML.

const form = document.querySelector("[data-playground]");
const fields = form.elements;
const words = JSON.parse(form.dataset.words);
const advice = JSON.parse(form.dataset.advice);
const templates = JSON.parse(form.dataset.templates);
const costs = JSON.parse(form.dataset.costs);
const part = (name) => form.querySelector(`[data-part="${name}"]`);
const turns = part("turns");
const message = part("message");
const say = (name, ...values) => values.reduce((text, value) => text.replace("%s", () => value), words[name]);
const number = new Intl.NumberFormat(document.documentElement.lang || undefined);
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// What the API is sent, besides the system text.
let messages = [];
let openCalls = null;
let running = null;
let token = "";
let renewAt = 0;

function make(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function put(parent, ...children) {
  parent.append(...children);
  turns.scrollTop = turns.scrollHeight;
  return parent;
}

// Errors have the API's own shape: { message, type, code }, with a status and, where the API gives one, a time to wait.
class Refused extends Error {
  constructor(status, error, headers) {
    super(error.message);
    Object.assign(this, { status, type: error.type, code: error.code, headers });
  }
}

async function askConsole(path, values) {
  const answer = await fetch(path, { method: "POST", body: new URLSearchParams(values) });
  const told = await answer.json().catch(() => ({ message: answer.statusText }));
  if (!answer.ok) throw new Refused(answer.status, { message: told.message, code: answer.status === 401 ? "signed_out" : "" });
  return told;
}

async function freshToken() {
  if (Date.now() < renewAt) return;
  const made = await askConsole("/playground/token", {});
  token = made.token;
  // Renewed well before it ends, so that no request meets its end.
  renewAt = Date.now() + Math.max(0, made.valid_s - 120) * 1000;
}

async function askApi(request, signal) {
  for (let attempt = 1; ; attempt += 1) {
    await freshToken();
    const answer = await fetch(`${form.dataset.api}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify(request),
      signal,
      referrerPolicy: "no-referrer",
    }).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Refused("", { message: error.message, code: "unreachable" });
    });
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => ({}));
    // A token may have been ended since: a new one tells whether the sign-in has.
    renewAt = answer.status === 401 ? 0 : renewAt;
    if (answer.status !== 401 || attempt > 1) {
      throw new Refused(answer.status, told.error ?? { message: answer.statusText }, answer.headers);
    }
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: {")) yield JSON.parse(event.slice(6));
    }
  }
}

// Text that grows: prose, and code between fences. Only the last block is drawn again.
class Blocks {
  constructor(parent) {
    Object.assign(this, { parent, text: "", drawn: [], frame: 0 });
  }

  add(piece) {
    this.text += piece;
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const parts = this.text.split(/^```/m);
    for (let at = Math.max(0, this.drawn.length - 1); at < parts.length; at += 1) {
      const isCode = at % 2 === 1;
      this.drawn[at] ??= isCode ? codeBlock(this.parent, "") : this.parent.appendChild(make("p", "prose"));
      this.drawn[at].textContent = isCode ? parts[at].replace(/^.*\n?/, "").trimEnd() : parts[at].trim();
    }
    turns.scrollTop = turns.scrollHeight;
  }
}

function codeBlock(parent, text) {
  const pre = make("pre", "block");
  pre.tabIndex = 0;
  pre.setAttribute("role", "group");
  pre.setAttribute("aria-label", words.code);
  const code = make("code", "", text);
  put(parent, put(pre, code));
  return code;
}

function turn(kind, title, text = "") {
  const made = put(make("article", `turn ${kind}`), make("h3", "", title));
  if (text) new Blocks(made).add(text);
  put(turns, made);
  part("empty").hidden = true;
  return made;
}

async function showCost(line, requestId) {
  const cost = make("span", "", words.asking);
  put(line, cost);
  for (let wait = 50; wait < 10_000; wait *= 2) {
    await pause(wait);
    try {
      const told = await askConsole("/playground/cost", { request_id: requestId });
      if (told.usd) {
        cost.textContent = Number(told.usd) ? say("cost", told.usd) : words.free;
        if (costs.free !== null) costs.free -= Number(told.usd) * 1e9;
        line.firstChild.textContent = tokensOf(told.input_tokens, told.cached_tokens, told.output_tokens);
        const receipt = make("a", "", words.receipt);
        receipt.href = `/requests/${requestId}`;
        put(line, receipt);
        return;
      }
    } catch (error) {
      if (error.status === 404) { cost.textContent = words.free; return; }
    }
  }
  cost.textContent = words.later;
}

function tokensOf(read, cached, written) {
  const shown = (cached ? [read, cached, written] : [read, written]).map((count) => number.format(count));
  return say(cached ? "cached" : "tokens", ...shown);
}

function showError(error) {
  const box = part("error");
  const wait = error.headers?.get("retry-after");
  const requestId = error.headers?.get("x-request-id");
  const text = advice[error.code] ?? advice[error.status] ?? advice[error.status < 500 ? 400 : 500];
  const shape = [...new Set([error.status, error.type, error.code])].filter(Boolean).join(" · ");
  box.replaceChildren(make("strong", "", error.message || shape), make("p", "", wait ? `${text} ${say("retry", wait)}` : text));
  if (shape) put(box, make("p", "mono small", requestId ? `${shape} · ${say("request", requestId)}` : shape));
  box.hidden = false;
}

function tools() {
  const given = fields.tools.value.trim();
  const state = part("tools-state");
  let parsed = [];
  let problem = "";
  try {
    parsed = given ? JSON.parse(given) : [];
    if (!Array.isArray(parsed)) problem = words.badTools;
  } catch (error) {
    problem = say("badJson", error.message);
  }
  fields.tools.setAttribute("aria-invalid", String(problem !== ""));
  state.className = problem ? "problem" : "hint";
  const names = problem ? [] : parsed.map((tool) => tool?.function?.name ?? "?");
  state.textContent = problem || (names.length ? say("goodTools", names.join(", ")) : "");
  return problem ? null : parsed;
}

function requestFor(said) {
  const system = fields.system.value.trim();
  const request = { model: fields.model.value, messages: [...(system ? [{ role: "system", content: system }] : []), ...said] };
  for (const name of ["temperature", "max_tokens"]) {
    if (fields[name].value) request[name] = Number(fields[name].value);
  }
  if (fields.response_format.value) request.response_format = { type: fields.response_format.value };
  const given = tools() ?? [];
  if (given.length) request.tools = given;
  return request;
}

// The conversation as a program: each language writes the request in its own way.
function asPython(value, indent = "") {
  const deeper = `${indent}    `;
  const list = (open, items, close) => (items.length ? `${open}\n${items.map((item) => `${deeper}${item},\n`).join("")}${indent}${close}` : open + close);
  if (Array.isArray(value)) return list("[", value.map((item) => asPython(item, deeper)), "]");
  if (value && typeof value === "object") {
    return list("{", Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${asPython(item, deeper)}`), "}");
  }
  return value === null ? "None" : typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value);
}

// What the next request can cost, as the edge estimates what it holds: a token for four bytes, and what the service adds.
function showEstimate(request) {
  const line = part("estimate");
  const price = costs.prices[request.model];
  line.hidden ||= !price;
  if (line.hidden) return;
  const bytes = new TextEncoder().encode(JSON.stringify([request.messages, request.tools ?? []])).length;
  const prompt = Math.floor(bytes / 4) + costs.unseen;
  const limit = request.max_tokens;
  const answer = limit ?? costs.slice;
  const nanos = (prompt * price[0] + answer * price[1]) / 1e6;
  const told = say(limit ? "atMost" : "atFirst", dollars(nanos), number.format(prompt), number.format(answer));
  const isEnough = costs.free === null || nanos <= costs.free;
  const credit = costs.free === null ? "" : ` ${say(isEnough ? "credit" : "tooLittle", dollars(costs.free))}`;
  line.textContent = told + credit;
}

// Two digits that count, and cents at least; rounded up, as it is a limit.
function dollars(nanos) {
  const usd = nanos / 1e9;
  const places = usd >= 1 || usd <= 0 ? 2 : Math.min(9, Math.max(2, 1 - Math.floor(Math.log10(usd))));
  return (Math.ceil(usd * 10 ** places) / 10 ** places).toFixed(places);
}

function showCode() {
  const typed = message.value.trim();
  const said = [...messages, ...(typed ? [{ role: "user", content: typed }] : [])];
  part("estimate").hidden = !typed;
  if (!said.length) return;
  const request = requestFor(said);
  showEstimate(request);
  const text = JSON.stringify(request, null, 2);
  const written = { curl: `'${text.replaceAll("'", `'"'"'`)}'`, python: asPython(request), node: text };
  for (const [language, template] of Object.entries(templates)) {
    document.getElementById(`snippet-${language}`).textContent = template.replace("@REQUEST@", () => written[language]);
  }
}

function setRunning(controller, status) {
  running = controller;
  part("send").hidden = Boolean(controller);
  part("stop").hidden = !controller;
  if (controller) part("estimate").hidden = true;
  part("send").disabled = openCalls !== null;
  part("clear").hidden = part("download").hidden = Boolean(controller) || !messages.length;
  turns.setAttribute("aria-busy", String(Boolean(controller)));
  part("status").textContent = status;
}

function collect(calls, deltas) {
  for (const delta of deltas) {
    const call = (calls[delta.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    call.id ||= delta.id ?? "";
    call.function.name += delta.function?.name ?? "";
    call.function.arguments += delta.function?.arguments ?? "";
  }
}

// Sends what was added and shows the answer. Where nothing comes, `undo` puts back what was added.
async function exchange(added, undo) {
  if (tools() === null) {
    form.querySelector("details").open = true;
    fields.tools.focus();
    return undo();
  }
  part("error").hidden = true;
  const before = messages.length;
  messages.push(...added);
  const controller = new AbortController();
  setRunning(controller, words.answering);
  const made = turn("assistant", words.assistant);
  const blocks = new Blocks(made);
  const calls = [];
  let usage = null;
  let ended = "";
  let requestId = "";
  let firstAfter = 0;
  let failure = null;
  try {
    const began = performance.now();
    const answer = await askApi({ ...requestFor(messages), stream: true }, controller.signal);
    requestId = answer.headers.get("x-request-id");
    for await (const chunk of eventsOf(answer.body)) {
      if (chunk.error) throw new Refused("", chunk.error, answer.headers);
      const choice = chunk.choices?.[0];
      usage = chunk.usage ?? usage;
      ended = choice?.finish_reason ?? ended;
      const delta = choice?.delta ?? {};
      if (delta.content || delta.tool_calls) firstAfter ||= performance.now() - began;
      if (delta.content) blocks.add(delta.content);
      if (delta.tool_calls) collect(calls, delta.tool_calls);
      if (delta.annotations) showSources(made, delta.annotations);
    }
  } catch (error) {
    failure = error;
  }
  blocks.draw();
  const isStopped = failure?.name === "AbortError";
  const whole = ended && !failure;
  if (failure && !isStopped) showError(failure);
  if (!firstAfter && !whole) {
    messages.length = before;
    made.remove();
    undo();
    setRunning(null, isStopped ? words.stopped : "");
    return showCode();
  }
  if (whole || blocks.text) messages.push({ role: "assistant", content: blocks.text || null });
  if (whole && calls.length) {
    messages.at(-1).tool_calls = calls;
    showCalls(made, calls);
  }
  const how = isStopped ? words.stopped : !whole ? words.cut : ended === "length" ? words.length : ended === "content_filter" ? words.filtered : "";
  if (how) put(made, make("p", "small", how));
  const line = make("p", "facts-line");
  const details = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  put(line, make("span", "", usage ? tokensOf(usage.prompt_tokens, details, usage.completion_tokens) : ""));
  if (firstAfter) put(line, make("span", "", say("first", (firstAfter / 1000).toFixed(1))));
  put(made, line);
  setRunning(null, how || (openCalls ? words.results : words.finished));
  showCode();
  if (requestId) await showCost(line, requestId);
}

function showSources(parent, annotations) {
  const list = make("ul", "sources");
  list.setAttribute("aria-label", words.sources);
  for (const { url_citation: cited } of annotations) {
    if (!/^https?:/.test(cited?.url ?? "")) continue;
    const link = make("a", "", cited.title || cited.url);
    link.href = cited.url;
    link.rel = "noreferrer";
    link.target = "_blank";
    put(list, put(make("li"), link));
  }
  if (list.childElementCount) put(parent, list);
}

function showCalls(parent, calls) {
  const inputs = calls.map((call, place) => {
    const id = `result-${messages.length}-${place}`;
    put(parent, make("p", "call", say("calls", call.function.name)));
    let given = call.function.arguments;
    try { given = JSON.stringify(JSON.parse(given), null, 2); } catch { /* shown as it came */ }
    codeBlock(parent, given);
    const label = make("label", "", say("result", call.function.name));
    const input = make("textarea", "mono");
    label.htmlFor = input.id = id;
    put(parent, put(make("div", "field"), label, input));
    return input;
  });
  const button = make("button", "button primary", words.sendResults);
  button.type = "button";
  put(parent, button);
  openCalls = () => {
    const results = calls.map((call, place) => ({ role: "tool", tool_call_id: call.id, content: inputs[place].value }));
    const shown = calls.map((call, place) => turn("tool", say("tool", call.function.name), inputs[place].value));
    const again = openCalls;
    openCalls = null;
    button.hidden = true;
    for (const input of inputs) input.readOnly = true;
    exchange(results, () => {
      shown.forEach((each) => each.remove());
      openCalls = again;
      button.hidden = false;
      for (const input of inputs) input.readOnly = false;
    });
  };
  button.addEventListener("click", () => openCalls?.());
  inputs[0].focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = message.value.trim();
  // The button hides, and the focus would be lost with it.
  message.focus();
  if (!text || running || openCalls) return;
  message.value = "";
  const shown = turn("user", words.user, text);
  exchange([{ role: "user", content: text }], () => {
    shown.remove();
    message.value ||= text;
    part("empty").hidden = messages.length > 0;
  });
});

message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
part("stop").addEventListener("click", () => {
  running?.abort();
  message.focus();
});
part("clear").addEventListener("click", () => {
  messages = [];
  openCalls = null;
  turns.replaceChildren(part("empty"));
  part("empty").hidden = false;
  part("error").hidden = true;
  setRunning(null, "");
  message.focus();
});
part("download").addEventListener("click", () => {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(requestFor(messages), null, 2)], { type: "application/json" }));
  link.download = "conversation.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
part("example").addEventListener("click", (event) => {
  fields.tools.value = event.target.dataset.text;
  tools();
  showCode();
});
form.addEventListener("input", (event) => {
  if (event.target === fields.tools) tools();
  showCode();
});
form.hidden = false;
