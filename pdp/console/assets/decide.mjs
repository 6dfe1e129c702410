// Helps to decide with care. Without this script the page shows all that is long, and every button works.

const calm = 500; // ms after which a press counts: a page that came to the front meanwhile was not read
let front = performance.now();
const toFront = () => { front = performance.now(); };
addEventListener("focus", toFront);
addEventListener("pageshow", toFront);
document.addEventListener("visibilitychange", toFront);

const form = document.getElementById("decide");
const approve = document.getElementById("approve");
const label = approve?.querySelector("span");
const said = label?.textContent;
const status = document.getElementById("sending");
const unread = new Set();

for (const long of document.querySelectorAll("details.long")) {
  long.open = false;
  unread.add(long);
  long.addEventListener("toggle", () => { if (long.open) { unread.delete(long); show(); } });
}

function show() {
  if (label) label.textContent = unread.size > 0 ? "Read all arguments first" : said;
}
show();

form?.addEventListener("submit", (event) => {
  const decision = event.submitter?.value;
  if (performance.now() - front < calm) {
    event.preventDefault();
    status.textContent = "One moment: press again. The page had only just appeared, so nothing was sent.";
    return;
  }
  if (decision === "approve" && unread.size > 0) {
    event.preventDefault();
    const [first] = unread;
    first.scrollIntoView({ block: "center" });
    first.querySelector("summary").focus();
    return;
  }
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "yes";
  status.textContent = "Sending. The answer comes when it is in the log.";
});
addEventListener("pageshow", () => { if (form) delete form.dataset.sent; });

document.addEventListener("time-over", () => {
  const over = document.getElementById("over");
  if (!over || !over.hidden) return;
  over.hidden = false;
  for (const button of document.querySelectorAll(".verdict button")) button.disabled = true;
});
