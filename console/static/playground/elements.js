// The parts of the page, the elements that scripts add to it, and its words, which come with it in its language.

export const form = document.querySelector("[data-playground]");
export const fields = form.elements;
export const dataOf = (name) => JSON.parse(form.dataset[name]);
export const part = (name) => form.querySelector(`[data-part="${name}"]`);
export const message = part("message");
export const words = dataOf("words");
export const say = (name, values) => words[name].replace(/%\((\w+)\)s/g, (_, value) => values[value]);

const language = document.documentElement.lang;
export const count = (value) => value.toLocaleString(language);
export const dollars = (usd, least = 2, most = least) => usd.toLocaleString(language, {
  style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: least, maximumFractionDigits: most,
});

export function make(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(text);
  return made;
}

export function put(parent, ...children) {
  parent.append(...children);
  return parent;
}

export function button(text, act, className = "button quiet") {
  const made = make("button", className, text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

export function field(label, rows, value = "") {
  const input = make("textarea");
  input.rows = rows;
  input.value = value;
  return [put(make("label", "field"), make("strong", "", label), input), input];
}

// A change leaves the end of the conversation in sight, unless the reader has scrolled away from it.
export function keepEndInSight(change) {
  const box = part("turns");
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 48;
  change();
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}
