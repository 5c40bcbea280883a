// Reads the figures of the page of models again while it is visible. Without it, the Refresh link does.

const EVERY_MS = 5000;
// A page without any input must not keep its session alive: that ends after an hour without use.
const UNTOUCHED_MS = 15 * 60 * 1000;
const root = document.querySelector("[data-status]");
const problem = root.querySelector("[data-problem]");
const readAt = document.querySelector("[data-read-at]");
// A figure of a table has two cells: one of them for a narrow page.
const cells = Map.groupBy(root.querySelectorAll("[data-live]"), (cell) => cell.dataset.live);
const KINDS = ["good", "warn", "bad"];
document.querySelector("[data-refreshing]").hidden = false;

function show(figures) {
  for (const [name, [text, kind]] of Object.entries(figures)) {
    for (const cell of cells.get(name) ?? []) {
      cell.textContent = text;
      for (const each of KINDS) cell.classList.toggle("badge" in cell.dataset ? each : `kind-${each}`, each === kind);
    }
  }
}

// Not `reload`: the page may answer a form, which must not be sent again.
function load() {
  location.replace(location.pathname);
}

async function refresh() {
  try {
    const response = await fetch(root.dataset.status, { headers: { accept: "application/json" } });
    if (response.status === 401 || response.status === 404) return load();
    if (!response.ok) throw new Error(response.statusText);
    const status = await response.json();
    // Other processes, models or findings: the page itself is another one.
    if (status.shape !== root.dataset.shape) return load();
    show(status.figures);
    readAt.textContent = status.time;
    problem.hidden = true;
  } catch {
    problem.textContent = root.dataset.failed.replace("{time}", readAt.textContent);
    problem.hidden = false;
  }
}

let due = null;
let touchedAt = performance.now();
function schedule() {
  clearTimeout(due);
  due = null;
  if (document.visibilityState !== "visible") return;
  if (performance.now() - touchedAt > UNTOUCHED_MS) {
    problem.textContent = root.dataset.paused.replace("{time}", readAt.textContent);
    problem.hidden = false;
    return;
  }
  due = setTimeout(async () => {
    await refresh();
    schedule();
  }, EVERY_MS);
}
for (const kind of ["pointermove", "pointerdown", "keydown", "visibilitychange"]) {
  document.addEventListener(kind, () => {
    touchedAt = performance.now();
    if (due === null || kind === "visibilitychange") schedule();
  });
}
schedule();
