// Keeps an open page up to date while somebody can see it. It asks for the page again, which costs little as long as
// nothing has changed, and takes over the parts that may change. Nothing moves under a finger: what would move the
// rest is announced, and a link shows it.

const main = document.getElementById("main");
const pause = 1500; // ms between two questions
const longest = 30_000; // ms between them while the service does not answer
let tag = main.dataset.tag;
let wait = pause;
let timer;

// The browser makes a document of the answer, without running anything of it.
function ask() {
  const request = new XMLHttpRequest();
  request.open("GET", main.dataset.watch);
  request.responseType = "document";
  request.timeout = 20_000;
  request.setRequestHeader("Console-Poll", "1");
  request.setRequestHeader("If-None-Match", tag);
  request.addEventListener("loadend", () => { hear(request); later(); });
  request.send();
}

function later() {
  clearTimeout(timer);
  if (document.visibilityState === "visible") timer = setTimeout(ask, wait);
}

function hear(answer) {
  const known = [200, 304, 401].includes(answer.status);
  wait = known ? pause : Math.min(2 * wait, longest);
  if (known) document.getElementById("signed-out").hidden = answer.status !== 401;
  if (answer.status !== 200 || !answer.responseXML) return;
  tag = answer.getResponseHeader("ETag") ?? "";
  take(answer.responseXML);
}

const copy = (node) => [...node?.childNodes ?? []].map((child) => document.importNode(child, true));

// busy reports whether somebody uses a part of the page.
const busy = (part) => part.contains(document.activeElement) || part.matches(":hover, :active");

function take(now) {
  for (const part of document.querySelectorAll("[data-live]")) {
    if (!busy(part)) part.replaceChildren(...copy(now.getElementById(part.id)));
  }
  compareRows(now);
  compareButtons(now);
  document.dispatchEvent(new CustomEvent("page-changed"));
}

// compareRows says how many rows are new, and how many are not in the list any more.
function compareRows(now) {
  const changed = document.getElementById("changed");
  if (!changed) return;
  const rows = (page) => [...page.querySelectorAll("#rows a.row")].map((row) => row.getAttribute("href"));
  const without = (some, others) => some.filter((row) => !others.includes(row)).length;
  const before = rows(document), after = rows(now);
  const counts = { added: without(after, before), gone: without(before, after) };
  for (const [id, count] of Object.entries(counts)) {
    const part = document.getElementById(id);
    part.hidden = !count;
    part.querySelector("b").textContent = count;
  }
  changed.hidden = !counts.added && !counts.gone;
}

// compareButtons says what has become of a request on which somebody was about to decide.
function compareButtons(now) {
  const news = document.getElementById("news");
  if (!news) return;
  let closed = false;
  for (const id of ["approve", "deny"]) {
    const button = document.getElementById(id);
    if (!button) continue;
    button.disabled = !now.getElementById(id);
    closed ||= button.disabled;
  }
  const policies = (page) => page.querySelector("#decide [name=policies]").value;
  news.replaceChildren(...closed ? copy(now.getElementById("state")) : []);
  document.getElementById("again").hidden = !closed;
  document.getElementById("over").hidden = true;
  document.getElementById("new-policies").hidden = closed || policies(now) === policies(document);
}

document.addEventListener("visibilitychange", () => { wait = pause; if (document.visibilityState === "visible") ask(); });
later();
