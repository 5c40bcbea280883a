// What an answer took: tokens, time to its first token, and what the ledger charged, which is known a moment later.

import { askConsole } from "./api.js";
import { count, dollars, make, put, say, words } from "./elements.js";
import { spend } from "./estimate.js";

const tokensOf = (read, cached, written) => say(cached ? "cached" : "tokens", { read: count(read), cached: count(cached), written: count(written) });

export function addFacts(parent, usage, firstAfterMs, requestId) {
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const tokens = make("span", "", usage ? tokensOf(usage.prompt_tokens, cached, usage.completion_tokens) : "");
  const line = put(make("p", "facts-line"), tokens);
  if (firstAfterMs) put(line, make("span", "", say("first", { seconds: count(Math.round(firstAfterMs / 100) / 10) })));
  put(parent, line);
  if (requestId) addCost(line, tokens, requestId);
}

async function addCost(line, tokens, requestId) {
  const cost = line.appendChild(make("span", "", words.asking));
  for (let wait = 50; wait < 10_000; wait *= 2) {
    await new Promise((resolve) => { setTimeout(resolve, wait); });
    try {
      const told = await askConsole("/playground/cost", { request_id: requestId });
      if (told.usd) {
        const usd = Number(told.usd);
        cost.textContent = usd ? say("cost", { cost: dollars(usd, 2, 9) }) : words.free;
        spend(usd);
        tokens.textContent = tokensOf(told.input_tokens, told.cached_tokens, told.output_tokens);
        const receipt = make("a", "", words.receipt);
        Object.assign(receipt, { href: `/requests/${requestId}`, target: "_blank" });
        put(line, receipt);
        return;
      }
    } catch (error) {
      if (error.status === 404) { cost.textContent = words.free; return; }
    }
  }
  cost.textContent = words.later;
}
