// Live updates of a page: server-sent events with the cells that have changed, and countdowns between them.
// Everything is set as text or as an attribute of this list, so nothing that arrives can become markup.
const ATTRIBUTES = new Set(["data-state", "data-until", "hidden", "max", "points", "title", "value", "width"]);
const PERIOD_MS = 1000;
const PATIENCE_MS = 6000;
const AGAIN_MS = 10000;

function formatDuration(seconds) {
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  const rest = seconds % 60;
  const two = (number) => String(number).padStart(2, "0");
  if (hours) return `${hours}h${two(minutes)}m`;
  return minutes ? `${minutes}m${two(rest)}s` : `${rest}s`;
}

// The server's clock counts: a browser's may be wrong. What took longest to arrive tells least about it.
let aheadMs = null;

function countDown() {
  for (const element of document.querySelectorAll("[data-until]")) {
    const leftMs = Date.parse(element.dataset.until) - (Date.now() + (aheadMs ?? 0));
    if (!Number.isNaN(leftMs)) element.textContent = formatDuration(Math.max(0, Math.ceil(leftMs / 1000)));
  }
}

function show(element, cell) {
  for (const [name, value] of Object.entries(cell.attributes ?? {})) {
    if (!ATTRIBUTES.has(name)) continue;
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
  if (cell.text !== undefined && cell.text !== null && element.textContent !== cell.text) {
    element.textContent = cell.text;
  }
}

function setNotice(id, text, isShown) {
  const notice = document.getElementById(id);
  if (text !== null && notice.textContent !== text) notice.textContent = text;
  if (notice.hidden === isShown) notice.hidden = !isShown;
}

// A connection that has ended is opened again by the browser, and one that was refused by us: only one that stays away
// is worth a word.
let silence = null;

function follow() {
  const cells = new Map();
  for (const element of document.querySelectorAll("[data-live]")) cells.set(element.dataset.live, element);
  const order = document.getElementById("main").dataset.order;
  const address = `/api/v1/events?page=${encodeURIComponent(location.pathname + location.search)}`;
  const source = new EventSource(address);
  source.addEventListener("message", (event) => {
    const update = JSON.parse(event.data);
    if (update.now) aheadMs = Math.max(aheadMs ?? -Infinity, Date.parse(update.now) - Date.now());
    for (const [key, cell] of Object.entries(update.cells)) {
      const element = cells.get(key);
      if (element) show(element, cell);
    }
    const names = JSON.stringify(update.order);
    setNotice("changed", null, names !== order);
    setNotice("problem", update.problem ?? "", Boolean(update.problem));
    countDown();
  });
  source.addEventListener("error", () => {
    silence ??= setTimeout(() => setNotice("problem", "No connection: what is shown may be old.", true), PATIENCE_MS);
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, AGAIN_MS);
  });
  source.addEventListener("open", () => {
    clearTimeout(silence);
    silence = null;
    setNotice("problem", "", false);
  });
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}
if (document.querySelector("main[data-order]")) follow();
setInterval(countDown, PERIOD_MS);
