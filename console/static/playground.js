// The playground: a conversation between this page and the API, with a token that ends with the sign-in. The console is asked for
// tokens and for what a request cost, and never sees a message. Nothing is stored. Answers become text and elements, never HTML.

import { clear, drawAgain, isEmpty, isSending, lastRequest, onNext, requestsAfter, send, stop } from "./playground/conversation.js";
import { fields, form, make, message, part } from "./playground/elements.js";
import { showEstimate } from "./playground/estimate.js";
import { showProgram } from "./playground/program.js";
import { readTools } from "./playground/request.js";

// Shows as a program, and with what it can cost, what is typed; or else as a program what the last answer came from.
function showNext(text = message.value.trim(), upTo = undefined) {
  const requests = text ? requestsAfter([{ role: "user", content: text }], upTo) : [];
  showEstimate(requests);
  if (text || !isEmpty()) showProgram(requests[0] ?? lastRequest());
}
onNext(showNext);

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = message.value.trim();
  message.value = "";
  const isSent = send(text, undefined, () => { message.value ||= text; });
  if (!isSent) message.value = text;
});
message.addEventListener("keydown", (event) => {
  if (!isSending(event)) return;
  event.preventDefault();
  form.requestSubmit();
});
part("stop").addEventListener("click", () => {
  stop();
  message.focus();
});
part("clear").addEventListener("click", () => {
  clear();
  message.focus();
});
part("download").addEventListener("click", () => {
  const requests = requestsAfter([]);
  const text = JSON.stringify(requests.length > 1 ? requests : requests[0], null, 2);
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "conversation.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
part("example").addEventListener("click", (event) => {
  fields.tools.value = event.target.dataset.text;
  readTools();
  showNext();
});
form.addEventListener("input", (event) => {
  if (event.target === fields.plain) drawAgain();
  // The fields of the conversation show themselves what they change.
  if (part("turns").contains(event.target)) return;
  if (event.target === fields.tools) readTools();
  showNext();
});
addEventListener("beforeunload", (event) => {
  if (!isEmpty() || [message, fields.system, fields.tools].some((each) => each.value.trim())) event.preventDefault();
});
form.hidden = false;
