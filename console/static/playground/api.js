// Calls of the API with a token that ends with the sign-in, and of the console, which makes tokens and knows what a request cost.

import { form } from "./elements.js";

let token = "";
let renewAt = 0;
let renewing = null;

// Errors have the API's own shape: { message, type, code }, with a status and, where the API gives one, a time to wait.
export class Refused extends Error {
  constructor(status, error, headers) {
    super(error.message);
    Object.assign(this, { status, type: error.type, code: error.code, headers });
  }
}

export async function askConsole(path, values) {
  const answer = await fetch(path, { method: "POST", body: new URLSearchParams(values) });
  const told = await answer.json().catch(() => ({ message: answer.statusText }));
  if (!answer.ok) throw new Refused(answer.status, { message: told.message, code: answer.status === 401 ? "signed_out" : "" });
  return told;
}

async function renewToken() {
  const made = await askConsole("/playground/token", {});
  token = made.token;
  // Renewed well before it ends, so that no request meets its end.
  renewAt = Date.now() + Math.max(0, made.valid_s - 120) * 1000;
}

export async function askApi(request, signal) {
  for (let attempt = 1; ; attempt += 1) {
    if (Date.now() >= renewAt) await (renewing ??= renewToken().finally(() => { renewing = null; }));
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

export async function* eventsOf(body) {
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
