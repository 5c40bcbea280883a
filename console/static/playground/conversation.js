// The conversation: turns, each with what was said and the answer of each class that was asked. It is here and nowhere else.

import { receiveAnswer } from "./answer.js";
import { button, field, fields, form, keepEndInSight, make, message, part, put, say, words } from "./elements.js";
import { hideFailures } from "./failure.js";
import { models, readTools, requestFor } from "./request.js";

let turns = [];
let running = null;
// Tells the page what would be sent next, in place of the turns from a certain one on.
let tellNext = () => {};
export const onNext = (tell) => { tellNext = tell; };

export const isEmpty = () => !turns.length;
export const stop = () => running?.abort();
const waitsForResults = () => turns.at(-1)?.results;

// The messages of the class in this place. One that was not asked in a turn goes on from what the first has answered.
export function messagesOf(place, upTo = turns.length) {
  return turns.slice(0, upTo).flatMap((turn) => {
    const side = turn.sides[place] ?? turn.sides[0];
    return side.answer ? [...side.said, side.answer] : side.said;
  });
}

export const requestsAfter = (said, upTo) => models().map((model, place) => requestFor(model, [...messagesOf(place, upTo), ...said]));

// The request that the last answer came from.
export function lastRequest() {
  const said = messagesOf(0);
  return requestFor(fields.model.value, said.at(-1)?.role === "assistant" ? said.slice(0, -1) : said);
}

export function drawAgain() {
  for (const turn of turns) turn.sides.forEach((side) => side.text?.drawAgain());
}

export function clear() {
  turns = [];
  part("turns").replaceChildren(part("empty"));
  hideFailures();
  refresh("");
}

function refresh(status) {
  const isBusy = running !== null;
  for (const turn of turns) {
    const isLast = turn === turns.at(-1);
    turn.retry.hidden = isBusy || !isLast;
    if (turn.edit) turn.edit.hidden = isBusy;
    if (turn.results) turn.results.hidden = isBusy || !isLast;
  }
  part("empty").hidden = !isEmpty();
  part("send").hidden = isBusy;
  part("stop").hidden = !isBusy;
  part("send").disabled = Boolean(waitsForResults());
  part("clear").hidden = part("download").hidden = isBusy || isEmpty();
  part("turns").setAttribute("aria-busy", String(isBusy));
  part("status").textContent = status;
  tellNext();
}

// Asks all classes at once, in place of the turns from `upTo` on. Where nothing comes, those are put back, and `undo` the rest.
async function exchange(turn, upTo, undo = () => {}) {
  if (running) return;
  // The button that was pressed hides, and the focus would be lost with it.
  message.focus();
  if (readTools() === null) {
    undo();
    form.querySelector("details").open = true;
    fields.tools.focus();
    return;
  }
  hideFailures();
  const before = turns;
  const replaced = turns.slice(upTo);
  turns = [...turns.slice(0, upTo), turn];
  running = new AbortController();
  replaced.forEach((each) => each.element.remove());
  const asked = turn.sides.filter((side) => side.said.length);
  const answers = make("div", "answers");
  turn.retry = button(words.retryAnswer, () => turn.again(turns.indexOf(turn)));
  put(turn.element, answers, turn.retry);
  put(part("turns"), turn.element);
  part("turns").scrollTop = part("turns").scrollHeight;
  refresh(words.answering);
  const outcomes = await Promise.all(asked.map((side) => {
    const title = say("answerOf", { model: side.model });
    const article = put(make("article", "turn assistant"), make("h3", "", asked.length > 1 ? title : words.assistant));
    put(answers, article);
    const request = requestFor(side.model, messagesOf(turn.sides.indexOf(side)));
    return receiveAnswer(side, request, article, asked.length > 1 ? title : "", running.signal);
  }));
  running = null;
  const how = [...new Set(outcomes.map((each) => each.how))].filter(Boolean).join(" ");
  if (!outcomes.some((each) => each.hasCome)) {
    turn.element.remove();
    turns = before;
    put(part("turns"), ...replaced.map((each) => each.element));
    undo();
    refresh(how === words.stopped ? how : "");
    return;
  }
  askForResults(turn);
  refresh(how || (turn.results ? words.results : outcomes.length > 1 ? words.finishedBoth : words.finished));
  turn.results?.querySelector("textarea").focus();
}

const newTurn = (sides, ...told) => ({ sides, element: put(make("div", "exchange"), ...told) });

function shown(kind, title, text) {
  return put(make("article", `turn ${kind}`), make("h3", "", title), make("p", "prose", text));
}

export function send(text, upTo = turns.length, undo = undefined) {
  if (!text || running || (upTo === turns.length && waitsForResults())) return false;
  const article = shown("user", words.user, text);
  const turn = newTurn(models().map((model) => ({ model, said: [{ role: "user", content: text }], answer: null })), article);
  turn.again = (place) => send(text, place);
  turn.edit = button(words.edit, () => edit(turn, article, text));
  put(article, turn.edit);
  exchange(turn, upTo, undo);
  return true;
}

// Lets the user write a message anew: what follows it is removed when it is sent.
function edit(turn, article, text) {
  const normal = [...article.childNodes];
  const [labelled, input] = field(words.editing, 3, text);
  const cancel = () => {
    article.replaceChildren(...normal);
    turn.edit.focus();
    tellNext();
  };
  const sendAgain = () => send(input.value.trim(), turns.indexOf(turn), () => input.focus());
  input.addEventListener("input", () => tellNext(input.value.trim(), turns.indexOf(turn)));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancel();
    if (!isSending(event)) return;
    event.preventDefault();
    sendAgain();
  });
  article.replaceChildren(normal[0], labelled, put(make("div", "buttons"), button(words.sendAgain, sendAgain, "button primary"), button(words.cancel, cancel)));
  input.focus();
}

export const isSending = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

// Where a class calls tools, the user enters their results.
function askForResults(turn) {
  const inputs = [];
  const box = make("div", "results");
  for (const side of turn.sides) {
    for (const call of side.answer?.tool_calls ?? []) {
      const name = call.function.name;
      const title = turn.sides.length > 1 ? say("resultFor", { name, model: side.model }) : say("result", { name });
      const [labelled, input] = field(title, 2);
      inputs.push({ side, call, input });
      put(box, labelled);
    }
  }
  if (!inputs.length) return;
  put(box, button(words.sendResults, () => sendResults(turn, inputs, turns.length), "button primary"));
  turn.results = box;
  keepEndInSight(() => turn.retry.before(box));
}

function sendResults(calling, inputs, upTo) {
  const sides = calling.sides.map((side, place) => ({
    model: models()[place] ?? side.model,
    said: inputs.filter((each) => each.side === side).map(({ call, input }) => ({ role: "tool", tool_call_id: call.id, content: input.value })),
    answer: null,
  }));
  const told = inputs.map(({ call, input }) => shown("tool", say("tool", { name: call.function.name }), input.value));
  const turn = newTurn(sides, ...told);
  turn.again = (place) => sendResults(calling, inputs, place);
  exchange(turn, upTo, () => inputs[0].input.focus());
}
