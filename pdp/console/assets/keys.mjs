// Keys lead to pages and through lists. No key decides anything.

const pages = new Map([["a", "/requests"], ["d", "/decisions"], ["p", "/policies"], ["t", "/try"], ["o", "/"]]);
const help = document.getElementById("keys");
const on = document.getElementById("keys-on");
const open = document.getElementById("show-keys");
let going = false; // g was pressed

// Somebody who speaks to the computer turns the keys off, because words are keys as well.
const off = "keys-off";
if (on) {
  on.checked = localStorage.getItem(off) === null;
  on.addEventListener("change", () => { if (on.checked) localStorage.removeItem(off); else localStorage.setItem(off, "yes"); });
}
if (open) {
  open.hidden = false;
  open.addEventListener("click", () => help.showModal());
}

const writes = (e) => e.matches("input, textarea, select") || e.isContentEditable;

// A link of the menu leads there: pages that the person may not see have none.
const linkTo = (path) => document.querySelector(`.menu a[href="${path}"]`);

function step(by) {
  const rows = [...document.querySelectorAll("a.row, .rows a, table a")].filter((e) => e.checkVisibility());
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 && by > 0 ? 0 : at + by];
  next?.focus();
  return Boolean(next);
}

function press(key) {
  if (going) {
    going = false;
    const to = linkTo(pages.get(key) ?? "");
    to?.click();
    return Boolean(to);
  }
  switch (key) {
    case "g":
      going = true;
      setTimeout(() => { going = false; }, 1500);
      return true;
    case "j": return step(1);
    case "k": return step(-1);
    case "/": {
      const field = document.querySelector("input[type=search], main form[method=get] input:not([type=hidden]), main form:not([method]) input:not([type=hidden])");
      field?.focus();
      return Boolean(field);
    }
    case "?":
      if (help && !help.open) help.showModal();
      return Boolean(help);
  }
  return false;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !on?.checked || writes(event.target) || help?.open) return;
  if (press(event.key)) event.preventDefault();
});
