// On every page: copy buttons, times in the reader's zone, shortcuts, and forms that are sent once. The pages work without it.
// Nothing is painted before it has run (`blocking="render"`): times become shorter, and tables would move. The same holds for
// scripts of single pages that show what does not work without them.

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    const status = button.querySelector("[data-label]");
    const before = status.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent.trim());
      status.textContent = button.dataset.done;
    } catch {
      getSelection().selectAllChildren(source);
      status.textContent = button.dataset.failed;
    }
    setTimeout(() => { status.textContent = before; }, 2500);
  });
}

// Times are written like the days that the server writes: 17 Nov 2026.
const language = document.documentElement.lang;
const locale = language.startsWith("en") ? "en-GB" : language;
const day = { month: "short", day: "numeric" };
const clock = { hour: language.startsWith("en") ? "2-digit" : "numeric", minute: "2-digit" };
const thisYear = new Date().getFullYear();
// The year is told where it is not this one, except of days, which are deadlines and beginnings.
function inWords(date, to, timeZone) {
  const year = to === "day" || date.getFullYear() !== thisYear ? { year: "numeric" } : {};
  const time = to === "day" ? {} : to === "second" ? { ...clock, second: "2-digit" } : clock;
  const shown = new Intl.DateTimeFormat(locale, { ...day, ...year, ...time, timeZone }).format(date);
  // A line may end between the day and the time, but not within either: 15 h 00.
  return shown.replaceAll(/(?<!,) /g, "\u00a0");
}
for (const time of document.querySelectorAll("time[data-to]")) {
  const date = new Date(time.dateTime);
  time.title = `${inWords(date, "minute", "UTC")} UTC`;
  time.textContent = inWords(date, time.dataset.to);
}

// Days are the reader's, where the reader's zone is known.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !document.cookie.split("; ").includes(`legato-zone=${zone}`)) keep(`legato-zone=${zone}`, 31536000);

function keep(cookie, seconds) {
  document.cookie = `${cookie}; path=/; max-age=${seconds}; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
}

for (const select of document.querySelectorAll("select[data-submits]")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}

for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    // Back from the browser's cache, the page can be used again.
    form.dataset.sent = "yes";
    addEventListener("pageshow", () => { delete form.dataset.sent; }, { once: true });
  });
}

// What takes long is asked for again while the page is visible.
for (const form of document.querySelectorAll("form[data-repeats]")) {
  setTimeout(() => form.requestSubmit(), 1000 * form.dataset.repeats);
}

document.querySelector("[data-focus]")?.focus();

const help = document.getElementById("shortcuts");
if (help) {
  const places = Object.fromEntries(
    [...document.querySelectorAll("[data-shortcut]")].map((link) => [link.dataset.shortcut, link.href]),
  );
  const choice = "legato-shortcuts=off";
  let isOn = !document.cookie.split("; ").includes(choice);
  const switches = document.querySelectorAll("[data-shortcuts]");
  for (const each of switches) {
    each.closest("section, dialog").hidden = false;
    each.checked = isOn;
    each.addEventListener("change", () => {
      isOn = each.checked;
      for (const other of switches) other.checked = isOn;
      keep(choice, isOn ? 0 : 31536000);
    });
  }
  let pressedAt = -Infinity;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, [contenteditable]");
    if (!isOn || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") {
      help.showModal();
    } else if (event.key === "g") {
      pressedAt = event.timeStamp;
    } else if (event.timeStamp - pressedAt < 1500 && places[event.key]) {
      location.assign(places[event.key]);
    }
  });
}
