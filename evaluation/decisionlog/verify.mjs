// Verifies entries of the decision log of policy-service: RFC 6962 hashes, C2SP checkpoints, ed25519.
// It needs WebCrypto with Ed25519 and nothing else: a browser, or Node from version 20.
//
//   node verify.mjs [KEYFILE]
//
// verifies the evidence in the directory of this file. KEYFILE has public keys of the log, one on each line,
// that did not come with the evidence. The exit code is 0 only if everything is verified.

const utf8 = new TextEncoder();
const fromUTF8 = bytes => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
const bytesOf = content => (typeof content === "string" ? utf8.encode(content) : content);

// base64 decodes the canonical form only: another text with the same bytes is not what was signed.
function base64(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  if (toBase64(bytes) !== text) throw new Error(`${text.slice(0, 80)} is not canonical base64`);
  return bytes;
}
const toBase64 = bytes => btoa(String.fromCharCode(...bytes));
const hex = bytes => Array.from(bytes, b => b.toString(16).padStart(2, "0")).join("");
const equal = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

function join(...parts) {
  const all = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", join(...parts)));
const leafHash = line => sha256(Uint8Array.of(0), bytesOf(line));
const nodeHash = (left, right) => sha256(Uint8Array.of(1), left, right);

// leftSize returns the largest power of two less than n, which is at least 2.
function leftSize(n) {
  let k = 1;
  while (2 * k < n) k *= 2;
  return k;
}

const isPowerOfTwo = n => n === 1 || 2 * leftSize(n) === n;

// A public key is "name+hash+base64(1 ‖ key)".
export async function parseKey(text) {
  const [name, hash, ...rest] = text.split("+");
  const encoded = base64(rest.join("+"));
  if (encoded.length !== 33 || encoded[0] !== 1) throw new Error("a key is not an ed25519 key");
  const id = (await sha256(utf8.encode(name + "\n"), encoded)).slice(0, 4);
  if (hex(id) !== hash) throw new Error("a key does not have its hash");
  return { text, name, id, key: await crypto.subtle.importKey("raw", encoded.slice(1), "Ed25519", false, ["verify"]) };
}

// openNote returns the text of a signed note, and the first of the keys that has signed it.
export async function openNote(note, keys) {
  const content = typeof note === "string" ? note : fromUTF8(note);
  const end = content.lastIndexOf("\n\n");
  if (end < 0) throw new Error("a note has no signature");
  const text = content.slice(0, end + 1);
  for (const key of await Promise.all(keys.map(parseKey))) {
    for (const line of content.slice(end + 2).split("\n")) {
      if (!line.startsWith(`— ${key.name} `)) continue;
      const signature = base64(line.slice(key.name.length + 3));
      if (signature.length === 68 && equal(signature.slice(0, 4), key.id) && (await crypto.subtle.verify("Ed25519", key.key, signature.slice(4), utf8.encode(text)))) {
        return { text, key: key.text };
      }
    }
  }
  throw new Error("a note is not signed with the key");
}

// verifyCheckpoint returns {origin, size, root, key} of a checkpoint that one of the keys has signed.
export async function verifyCheckpoint(note, keys) {
  const { text, key } = await openNote(note, keys);
  const [origin, number, root] = text.split("\n");
  const size = Number(number);
  if (!Number.isSafeInteger(size) || size < 0 || String(size) !== number || base64(root).length !== 32) throw new Error("the checkpoint is not whole");
  if (origin !== key.split("+")[0]) throw new Error("the checkpoint has the name of another log");
  return { origin, size, root, key };
}

// lineIndex returns the index at the beginning of a line.
function lineIndex(line) {
  const found = /^\{"index":(0|[1-9][0-9]{0,15}),/.exec(line);
  return found ? Number(found[1]) : -1;
}

// verifyEntry verifies an inclusion proof {line, index, hashes, checkpoint} and returns its checkpoint.
export async function verifyEntry(proof, keys) {
  const head = await verifyCheckpoint(proof.checkpoint, keys);
  const index = proof.index ?? 0;
  if (lineIndex(proof.line) !== index || index >= head.size) throw new Error(`entry ${index} does not have its index`);
  const path = proof.hashes.map(base64);
  const root = async (index, size, hash) => {
    if (size === 1) return hash;
    const sibling = path.pop();
    if (sibling === undefined || sibling.length !== 32) throw new Error("the proof has too few hashes");
    const k = leftSize(size);
    return index < k ? nodeHash(await root(index, k, hash), sibling) : nodeHash(sibling, await root(index - k, size - k, hash));
  };
  const got = await root(index, head.size, await leafHash(proof.line));
  if (path.length) throw new Error("the proof has too many hashes");
  if (toBase64(got) !== head.root) throw new Error(`entry ${index} is not in the log`);
  return head;
}

// verifyKeyChange verifies that the holder of a trusted key has signed the note that introduces a new one.
export async function verifyKeyChange(note, trusted, key) {
  await verifyCheckpoint(note, [trusted]);
  await verifyCheckpoint(note, [key]);
}

const required = ["entries.jsonl", "hashes", "checkpoint"];

// verifyBundle verifies the members of a bundle, a Map from name to Uint8Array. It returns the checkpoint with
// {entries, revisions, unlisted}: the parsed lines, the policies that were verified, and members that the
// bundle's manifest does not list.
export async function verifyBundle(members, keys) {
  for (const name of [...required, "manifest"]) if (!members.has(name)) throw new Error(`the bundle has no ${name}`);
  const head = await verifyCheckpoint(members.get("checkpoint"), keys);
  const lines = linesOf(fromUTF8(members.get("entries.jsonl")));
  await verifyLines(lines, linesOf(fromUTF8(members.get("hashes"))), head);
  const { text } = await openNote(members.get("manifest"), keys);
  const listed = await verifyManifest(text, members, head.origin, lines.length);
  const entries = lines.map(line => JSON.parse(line));
  return { ...head, entries, revisions: await verifyPolicies(members, listed, entries), unlisted: [...members.keys()].filter(name => name !== "manifest" && !listed.includes(name)) };
}

function linesOf(text) {
  const lines = text.split("\n");
  if (lines.pop() !== "") throw new Error("the last line of a member is not whole");
  return lines;
}

// verifyLines computes the root from the lines and from the hashes between them.
async function verifyLines(lines, hashes, head) {
  const indexes = lines.map(lineIndex);
  if (indexes.some((n, i) => n < 0 || n >= head.size || (i > 0 && n <= indexes[i - 1]))) throw new Error("an entry does not have its index");
  let line = 0, hash = 0;
  const next = () => {
    if (hash >= hashes.length) throw new Error("the bundle has too few hashes");
    const bytes = base64(hashes[hash++]);
    if (bytes.length !== 32) throw new Error("the bundle has a short hash");
    return bytes;
  };
  const root = async (lo, hi) => {
    const inside = line < indexes.length && indexes[line] < hi;
    if (!inside && isPowerOfTwo(hi - lo)) return next();
    if (hi - lo === 1) {
      const want = next();
      if (!equal(want, await leafHash(lines[line]))) throw new Error(`entry ${lo} is not what was recorded`);
      line++;
      return want;
    }
    const mid = lo + leftSize(hi - lo);
    const left = await root(lo, mid);
    return nodeHash(left, await root(mid, hi));
  };
  const got = head.size ? await root(0, head.size) : await sha256();
  if (line !== lines.length || hash !== hashes.length) throw new Error("the bundle has entries or hashes that belong nowhere");
  if (toBase64(got) !== head.root) throw new Error("the root is not that of the checkpoint");
}

// verifyManifest compares the signed manifest with the members, and returns the names that it lists.
async function verifyManifest(text, members, origin, entries) {
  const [format, name, count, selection, ...sums] = linesOf(text);
  if (format !== "policy-service decision log bundle 1" || name !== origin || count !== `entries ${entries}` || !selection.startsWith("selection {")) {
    throw new Error("the manifest is of another bundle");
  }
  const listed = [];
  for (const sum of sums) {
    const found = /^sha256 ([0-9a-f]{64}) (.+)$/.exec(sum);
    if (!found || listed.includes(found[2])) throw new Error("the manifest is not whole");
    const member = members.get(found[2]);
    if (!member) throw new Error(`the bundle has no ${found[2]}`);
    if (hex(await sha256(member)) !== found[1]) throw new Error(`${found[2]} is not what the manifest says`);
    listed.push(found[2]);
  }
  if (required.some((name, i) => listed[i] !== name)) throw new Error("the manifest does not list all members");
  return listed;
}

// byBytes orders texts as their UTF-8 bytes.
function byBytes(a, b) {
  const [x, y] = [utf8.encode(a), utf8.encode(b)];
  for (let i = 0; i < Math.min(x.length, y.length); i++) if (x[i] !== y[i]) return x[i] - y[i];
  return x.length - y.length;
}

// verifyPolicies verifies that the policies are those of the revisions that the entries name.
async function verifyPolicies(members, listed, entries) {
  const revisions = new Map();
  for (const name of listed) {
    const [folder, revision, ...path] = name.split("/");
    if (folder !== "policies") continue;
    if (!revisions.has(revision)) revisions.set(revision, []);
    revisions.get(revision).push(path.join("/"));
  }
  for (const [revision, paths] of revisions) {
    let manifest = "";
    for (const path of paths.sort(byBytes)) manifest += `${hex(await sha256(members.get(`policies/${revision}/${path}`)))}  ${path}\n`;
    if (hex(await sha256(utf8.encode(manifest))) !== revision) throw new Error(`the policies are not those of revision ${revision}`);
    if (!entries.some(entry => entry.revision === "sha256:" + revision)) throw new Error(`no entry names the revision ${revision}`);
  }
  return [...revisions.keys()];
}

// verifyDirectory verifies the evidence in a directory, and prints the result. It runs in Node only.
async function verifyDirectory(directory, keyFile) {
  const { readFile, readdir } = await import("node:fs/promises");
  const { join: at, relative, sep } = await import("node:path");
  const members = new Map();
  for (const file of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!file.isFile()) continue;
    const path = at(file.parentPath ?? file.path, file.name);
    members.set(relative(directory, path).split(sep).join("/"), new Uint8Array(await readFile(path)));
  }
  const keys = (await readFile(keyFile ?? at(directory, "keys"), "utf8")).split(/\s+/).filter(Boolean);
  const verified = await verifyBundle(members, keys);
  console.log(`verified: ${verified.entries.length} ${verified.entries.length === 1 ? "entry" : "entries"} of the ${verified.size} in ${verified.origin}`);
  console.log(`root ${verified.root}`);
  for (const entry of verified.entries) console.log(`entry ${entry.index}: ${entry.kind} ${entry.id} of ${entry.time}`);
  for (const revision of verified.revisions) console.log(`policies of sha256:${revision}`);
  for (const name of verified.unlisted.filter(name => !name.startsWith("."))) console.log(`not part of the evidence: ${name}`);
  console.log(`key ${verified.key}`);
  if (!keyFile) console.log("The key came with the evidence. Compare it with one that you have from elsewhere, or name its file.");
}

if (globalThis.process?.versions?.node) {
  const { fileURLToPath } = await import("node:url");
  const { dirname } = await import("node:path");
  const own = fileURLToPath(import.meta.url);
  const { realpathSync } = await import("node:fs");
  if (process.argv[1] && realpathSync(process.argv[1]) === own) {
    try {
      await verifyDirectory(dirname(own), process.argv[2]);
    } catch (fault) {
      console.error(`verify.mjs: ${fault.message}`);
      process.exit(4);
    }
  }
}
