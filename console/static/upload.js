// Sends documents one after another, and shows how far each is. Without it, the form sends one and waits.

const form = document.querySelector("form[data-upload]");
const input = form.elements.document;
const list = document.querySelector("[data-uploads]");
const row = document.querySelector("[data-upload-row]");
const language = document.documentElement.lang;
const say = (text, n, m) => text.replace("{n}", n.toLocaleString(language)).replace("{m}", m?.toLocaleString(language));
const percent = new Intl.NumberFormat(language, { style: "percent" });
const PARTS = { sending: [0, 40], reading: [40, 80], indexing: [80, 100] };

function addRow(file) {
  const item = row.content.firstElementChild.cloneNode(true);
  const [name, bar, status] = ["[data-name]", "progress", "[data-status]"].map((each) => item.querySelector(each));
  name.textContent = file.name;
  bar.setAttribute("aria-label", file.name);
  list.append(item);
  list.hidden = false;
  const show = (stage, n, m) => {
    const [from, to] = PARTS[stage];
    bar.value = from + ((to - from) * n) / Math.max(1, m);
    status.textContent = stage === "sending" ? say(form.dataset.sending, percent.format(n / Math.max(1, m))) : say(form.dataset[stage], n, m);
  };
  const end = (kind, text) => {
    item.classList.add(kind);
    bar.value = kind === "good" ? 100 : bar.value;
    status.textContent = text;
    if (kind === "bad") status.setAttribute("role", "alert");
    // The list below is from before.
    for (const each of document.querySelectorAll("[data-before]")) each.hidden ||= kind === "good";
    document.querySelector("[data-refresh]").hidden &&= kind !== "good";
    return kind === "good";
  };
  status.textContent = form.dataset.waiting;
  return { show, end, received: () => { status.textContent = form.dataset.received; } };
}

function send(file, shown) {
  if (file.size > Number(form.dataset.bytesMost)) return shown.end("bad", form.dataset.tooLarge);
  if (file.size === 0) return shown.end("bad", form.dataset.empty);
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    let read = 0;
    let last = null;
    const readLines = () => {
      for (let at; request.status === 200 && (at = request.responseText.indexOf("\n", read)) >= 0; read = at + 1) {
        last = JSON.parse(request.responseText.slice(read, at));
        if (PARTS[last.stage]) shown.show(last.stage, last.done, last.total);
      }
    };
    request.upload.addEventListener("progress", (event) => shown.show("sending", event.loaded, event.total));
    request.upload.addEventListener("load", shown.received);
    request.addEventListener("progress", readLines);
    request.addEventListener("load", () => {
      readLines();
      if (last?.stage === "done") return resolve(shown.end("good", say(form.dataset.done, last.passages)));
      let message = last?.message;
      try { message ??= JSON.parse(request.responseText).message; } catch { /* Not ours: a proxy's page. */ }
      resolve(shown.end("bad", message ?? form.dataset.failed));
    });
    request.addEventListener("error", () => resolve(shown.end("bad", form.dataset.failed)));
    request.open("POST", form.dataset.upload);
    const fields = new FormData();
    fields.append("document", file);
    request.send(fields);
  });
}

let isSending = false;
async function sendAll(files) {
  if (isSending || !files.length) return;
  isSending = true;
  const button = form.querySelector("button");
  button.disabled = true;
  list.replaceChildren();
  const rows = [...files].map((file) => [file, addRow(file)]);
  let areAllReady = true;
  for (const [file, shown] of rows) areAllReady = (await send(file, shown)) && areAllReady;
  if (areAllReady) return location.assign("/documents");
  form.reset();
  button.disabled = isSending = false;
  delete form.dataset.sent;
}

input.multiple = true;
form.addEventListener("submit", (event) => {
  event.preventDefault();
  sendAll(input.files);
});
const zone = form.querySelector(".drop");
for (const kind of ["dragover", "dragleave", "drop"]) {
  zone.addEventListener(kind, (event) => {
    event.preventDefault();
    zone.classList.toggle("over", kind === "dragover");
    if (kind === "drop") sendAll(event.dataTransfer.files);
  });
}
