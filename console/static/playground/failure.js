// A refusal in the words of the API, with what to do about it.

import { dataOf, make, part, put, say } from "./elements.js";

const advice = dataOf("advice");

// In seconds, or by the largest units: nobody waits for 69,794 seconds.
function inWords(seconds) {
  const named = (value, unit) => new Intl.NumberFormat(document.documentElement.lang, { style: "unit", unit, unitDisplay: "long" }).format(value);
  if (seconds <= 90) return named(seconds, "second");
  const minutes = Math.ceil(seconds / 60);
  const parts = [[Math.floor(minutes / 60), "hour"], [minutes % 60, "minute"]].filter(([value]) => value);
  return parts.map((each) => named(...each)).join(" ");
}

export function hideFailures() {
  part("error").hidden = true;
  part("error").replaceChildren();
}

export function showFailure(error, title) {
  const wait = error.headers?.get("retry-after");
  const requestId = error.headers?.get("x-request-id");
  const text = advice[error.code] ?? advice[error.status] ?? advice[error.status < 500 ? 400 : 500];
  const shape = [...new Set([error.status, error.type, error.code])].filter(Boolean).join(" · ");
  const told = make("strong", "", error.message || shape);
  // The API speaks English.
  if (error.type) told.lang = "en";
  const box = part("error");
  if (title) put(box, make("p", "small", title));
  put(box, told, make("p", "", wait ? `${text} ${say("retry", { time: inWords(Number(wait)) })}` : text));
  if (shape) put(box, make("p", "mono small", requestId ? `${shape} · ${say("request", { id: requestId })}` : shape));
  box.hidden = false;
}
