// Shows times in the zone of the reader, and how long is left. Without this script, pages show UTC
// and what was left when they were made.

const unit = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function length(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

function tick() {
  for (const time of document.querySelectorAll("time.ago")) {
    time.textContent = `${length(Date.now() - Date.parse(time.dateTime))} ago`;
  }
  for (const time of document.querySelectorAll("time.until")) {
    const left = Date.parse(time.dateTime) - Date.now();
    time.textContent = left > 0 ? `${length(left)} left` : "time is over";
    if (left <= 0) document.dispatchEvent(new CustomEvent("time-over"));
  }
}

function show() {
  for (const time of document.querySelectorAll("time:not(.ago, .until, .utc, [title])")) {
    time.title = time.dateTime;
    time.textContent = unit.format(new Date(time.dateTime));
  }
  tick();
}
show();
document.addEventListener("page-changed", show);
setInterval(tick, 1000);
