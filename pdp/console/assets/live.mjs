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
let until = null; // index after the last entry that came
let drawing = false;
let connection = "Connecting";
const patience = 40_000; // ms without a sign of life: the service sends one every 15 s
const pause = 2_000; // ms before connecting again
const connected = "Connected";

// Characters that nobody sees are written out, as everywhere in the console.
const plain = text => String(text ?? "").replace(/[\p{C}\p{Zl}\p{Zp}\u00ad\u034f\u115f\u1160\u3164]/gu, c => `\\u{${c.codePointAt(0).toString(16)}}`);

// A name that is not one word is in quotation marks: it must not pass for the words around it.
const named = text => {
  const shown = plain(text);
  return /^[\p{L}\p{N}\p{M}._\-@:/+#|~=%$*&?!]*$/u.test(shown) ? shown : `"${shown.replaceAll('"', '\\"')}"`;
};

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
  const what = [named(entry.what), named(entry.on)].filter(Boolean).join(" on ");
  const policies = (entry.policies ?? []).map(plain).join(", ");
  link.append(
    element("span", "what", element("bdi", "", named(entry.who) || "the service"), " ", element("bdi", "", what)),
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
  const rows = waiting.map(row).reverse();
  if (left) rows.push(element("li", "gap", `${left} entries are not listed`));
  list.prepend(...rows);
  while (list.children.length > most + (left ? 1 : 0)) list.lastChild.remove();
  document.getElementById("none").hidden = true;
  waiting = [];
  left = 0;
}

function later() {
  if (!drawing) requestAnimationFrame(draw);
  drawing = true;
}

function hear(activity) {
  const missed = until === null ? 0 : Math.max(0, activity.from - until);
  until = activity.until;
  count.skipped += missed;
  count.allowed += activity.allowed;
  count.denied += activity.denied;
  left += missed + (activity.omitted ?? 0);
  waiting.push(...activity.entries);
  if (waiting.length > most) left += waiting.length - most;
  waiting = waiting.slice(-most);
  if (paused) say(connection);
  later();
}

function say(what) {
  connection = what;
  const came = left + waiting.length;
  status.textContent = paused && what === connected ? came ? `Paused. ${came} entries came since.` : "Paused" : what;
}

function setPaused(now) {
  paused = now;
  button.textContent = paused ? "Go on" : "Pause";
  say(connection);
  if (!paused && left) status.textContent = `Going on. ${left} entries are not listed.`;
  later();
}

// connect shows what comes until the connection ends. It reports whether another one may go on.
async function connect() {
  const cut = new AbortController();
  let alive = Date.now(); // the clock goes on while a computer sleeps
  const watch = setInterval(() => { if (Date.now() - alive > patience) cut.abort(); }, 1_000);
  try {
    const headers = until === null ? {} : { "Last-Event-ID": until };
    const answer = await fetch(`/live/stream${location.search}`, { headers, redirect: "manual", signal: cut.signal });
    if (!answer.ok) return answer.status === 429 || answer.status >= 500;
    say(connected);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return true;
      alive = Date.now();
      const messages = (text + value).split("\n\n");
      text = messages.pop();
      for (const message of messages) {
        const data = /^data: (.*)$/m.exec(message);
        if (data) hear(JSON.parse(data[1]));
      }
    }
  } catch {
    return true;
  } finally {
    clearInterval(watch);
  }
}

button.hidden = false;
button.addEventListener("click", () => setPaused(!paused));
setPaused(paused);
while (await connect()) {
  say("Connection lost. Trying again.");
  await new Promise(done => setTimeout(done, pause));
}
say("The stream ended. Load the page again.");
