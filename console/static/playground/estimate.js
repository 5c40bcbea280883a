// What the next request can cost, as the edge estimates what it holds: a token for four bytes, and what the character takes.

import { count, dataOf, dollars, part, say } from "./elements.js";

const costs = dataOf("costs");

export function spend(usd) {
  if (costs.free !== null) costs.free -= usd * 1e9;
}

// Of the requests that are sent at once: their sum.
export function showEstimate(requests) {
  const line = part("estimate");
  line.hidden = !requests.length || !requests.every((request) => costs.prices[request.model]);
  if (line.hidden) return;
  const bytesOf = (request) => new TextEncoder().encode(JSON.stringify([request.messages, request.tools ?? []])).length;
  const parts = requests.map((request) => {
    const [input, output] = costs.prices[request.model];
    const prompt = Math.floor(bytesOf(request) / 4) + costs.unseen;
    const answer = request.max_tokens ?? costs.slice;
    return { model: request.model, prompt, answer, nanos: (prompt * input + answer * output) / 1e6 };
  });
  const nanos = parts.reduce((sum, each) => sum + each.nanos, 0);
  const name = (requests[0].max_tokens ? "atMost" : "atFirst") + (parts.length > 1 ? "Both" : "");
  const told = say(name, {
    cost: roundedUp(nanos),
    prompt: count(parts[0].prompt),
    answer: count(parts[0].answer),
    each: parts.map((each) => `${each.model} ${roundedUp(each.nanos)}`).join(", "),
  });
  const credit = costs.free === null ? "" : ` ${say(nanos <= costs.free ? "credit" : "tooLittle", { credit: roundedUp(costs.free) })}`;
  // Nobody knows before the question what of them fits it.
  const added = costs.adds && requests.some((request) => !request.tools?.length) ? ` ${say("added")}` : "";
  line.textContent = told + credit + added;
}

// Two digits that count, and cents at least; rounded up, as it is a limit.
function roundedUp(nanos) {
  const usd = nanos / 1e9;
  const places = usd >= 1 || usd <= 0 ? 2 : Math.min(9, Math.max(2, 1 - Math.floor(Math.log10(usd))));
  return dollars(Math.ceil(usd * 10 ** places) / 10 ** places, places);
}
