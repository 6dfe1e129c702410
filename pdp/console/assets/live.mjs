// Shows new entries of the log as they come. The list stands still while it is paused, and at first for those
// who want less motion.
const most = 50;
const list = document.getElementById("entries");
const status = document.getElementById("status");
const button = document.getElementById("pause");
const count = { allowed: 0, denied: 0, skipped: 0 };
let paused = matchMedia("(prefers-reduced-motion: reduce)").matches;
let waiting = []; // entries that are not shown yet
let left = 0; // entries that came while the list stood still, and are not shown at all
let until = null;
let drawing = false;

// Characters that nobody sees are written out, as everywhere in the console.
const plain = text => String(text ?? "").replace(/[\p{C}\p{Zl}\p{Zp}\u00ad\u034f\u115f\u1160\u3164]/gu, c => `\\u{${c.codePointAt(0).toString(16)}}`);

function element(name, className, ...content) {
  const out = document.createElement(name);
  if (className) out.className = className;
  out.append(...content);
  return out;
}

function answer(entry) {
  if (entry.items) return entry.denied ? ["bad", `${entry.denied} of ${entry.items} denied`] : ["good", `All ${entry.items} allowed`];
  if (entry.kind === "reload") return entry.decision ? ["info", "Policies loaded"] : ["bad", "Policies refused"];
  if (entry.decision === true) return ["good", "Allow"];
  if (entry.decision === false) return ["bad", "Deny"];
  return ["", plain(entry.event || entry.kind)];
}

function row(entry) {
  const link = element("a", "row");
  link.href = `/decisions/${entry.index}`;
  const [look, word] = answer(entry);
  const what = [plain(entry.what), plain(entry.on)].filter(Boolean).join(" on ");
  const policies = (entry.policies ?? []).map(plain).join(", ");
  link.append(
    element("span", "what", element("bdi", "", plain(entry.who) || "the service"), " ", element("bdi", "", what)),
    element("span", `tag ${look}`, word),
    element("span", "who", `${entry.time.slice(11, 23)} UTC · entry ${entry.index}`, policies && ` · ${policies}`, entry.shadow_differs ? " · the shadow decides otherwise" : ""),
  );
  return element("li", "", link);
}

function draw() {
  drawing = false;
  document.getElementById("allowed").textContent = count.allowed;
  document.getElementById("denied").textContent = count.denied;
  document.getElementById("skipped").textContent = count.skipped;
  if (paused || !waiting.length) return;
  const rows = document.createDocumentFragment();
  if (left) rows.append(element("li", "gap", `${left} entries are not listed`));
  for (const entry of waiting.slice(-most).reverse()) rows.prepend(row(entry));
  list.prepend(sorted(rows));
  while (list.children.length > most) list.lastChild.remove();
  document.getElementById("none").hidden = true;
  waiting = [];
  left = 0;
}

// sorted turns rows around: the newest is the first.
function sorted(rows) {
  const out = document.createDocumentFragment();
  out.append(...[...rows.children].reverse());
  return out;
}

function later() {
  if (!drawing) requestAnimationFrame(draw);
  drawing = true;
}

function hear(event) {
  const activity = JSON.parse(event.data);
  if (until !== null && activity.from > until) count.skipped += activity.from - until;
  until = activity.until;
  count.allowed += activity.allowed;
  count.denied += activity.denied;
  left += activity.omitted ?? 0;
  waiting.push(...activity.entries);
  if (waiting.length > most) left += waiting.length - most;
  waiting = waiting.slice(-most);
  if (paused) status.textContent = `Paused. ${left + waiting.length} entries came since.`;
  later();
}

function setPaused(now) {
  paused = now;
  button.textContent = paused ? "Go on" : "Pause";
  status.textContent = paused ? "Paused" : left ? `Going on. ${left} entries are not listed.` : "Connected";
  later();
}

button.hidden = false;
button.addEventListener("click", () => setPaused(!paused));
setPaused(paused);
const source = new EventSource(`/live/stream${location.search}`);
if (!paused) status.textContent = "Connecting";
source.addEventListener("open", () => { if (!paused) status.textContent = "Connected"; });
source.addEventListener("error", () => { status.textContent = source.readyState === EventSource.CLOSED ? "The stream ended. Load the page again." : "Connection lost. Trying again."; });
source.addEventListener("entries", hear);
