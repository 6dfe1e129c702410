// Verifies the entry of this page in the browser, with the key that this browser saw first.
import { parseKey, verifyEntry, verifyKeyChange } from "./verify.mjs";

const panel = document.getElementById("verify");
const show = (id, text) => { document.getElementById(id).textContent = text; };
const fetched = async (path, read) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
  return answer[read]();
};

function conclude(word, look, text) {
  const verdict = document.getElementById("verdict");
  verdict.textContent = word;
  verdict.className = `tag ${look}`;
  show("said", text);
}

// This browser keeps one key for this console, whatever name a log has: a server that lies could invent a log.
const keptAs = "log-key";
const short = key => key.split("+").slice(0, 2).join("+");

async function verify() {
  conclude("Verifying", "", "Your browser fetches the proof.");
  const [proof, keys] = await Promise.all([fetched(`/decisions/${panel.dataset.index}/proof`, "json"), fetched("/log/keys", "json")]);
  const newest = keys.keys[keys.keys.length - 1];
  const kept = localStorage.getItem(keptAs);
  let said = `Your browser computed this from ${proof.hashes.length} hashes. It keeps the key ${short(newest)}.`;
  if (!kept) {
    localStorage.setItem(keptAs, newest);
    said = `Your browser computed this from ${proof.hashes.length} hashes. It saw the key ${short(newest)} for the first time, and keeps it. Compare it with one that you have from elsewhere.`;
  } else if (kept !== newest) {
    try {
      if (!keys.change) throw new Error("no change");
      await verifyKeyChange(keys.change, kept, newest);
    } catch {
      refuse(newest, `The log is signed with the key ${short(newest)}, and this browser keeps ${short(kept)}. The kept key has not signed the change.`);
      return;
    }
    localStorage.setItem(keptAs, newest);
    said = `The key changed: ${short(kept)} has signed that ${short(newest)} follows. Your browser keeps the new one, and computed this from ${proof.hashes.length} hashes.`;
  }
  const head = await verifyEntry(proof, [newest]);
  if (String(proof.index ?? 0) !== panel.dataset.index) throw new Error("the proof is of another entry");
  show("size", ` of ${head.size}`);
  show("root", head.root);
  show("key", short(head.key));
  conclude("Verified here", "good", said);
}

// refuse says that a key is not trusted, and offers to trust it from now on.
function refuse(key, text) {
  conclude("Not verified: another key", "bad", text);
  show("key", short(key));
  const offer = document.getElementById("trust");
  offer.hidden = false;
  offer.querySelector("button").onclick = () => {
    localStorage.setItem(keptAs, key);
    offer.hidden = true;
    run();
  };
}

async function run() {
  try {
    await verify();
  } catch (fault) {
    if (fault.name === "NotSupportedError" || !globalThis.crypto?.subtle) {
      conclude("Cannot verify here", "wait", "This browser cannot verify ed25519 signatures. Use the commands below.");
    } else {
      conclude("Not verified", "bad", `${fault.message}. Keep the evidence pack, and ask for a log verify on the host.`);
    }
  }
}

const pasted = document.getElementById("pasted");
pasted.addEventListener("submit", async event => {
  event.preventDefault();
  const key = new FormData(pasted).get("key").trim();
  try {
    await parseKey(key);
  } catch {
    show("paste-said", "This is not a key. A key is one line, as policy-service log keys prints it. Your browser keeps the key that it had.");
    return;
  }
  show("paste-said", "");
  localStorage.setItem(keptAs, key);
  run();
});
await run();
