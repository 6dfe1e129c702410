// The official client, with DPoP proofs of a library for OAuth: node dpop.mjs ALG. It
// says the thumbprint of its key, reads {"token":…,"legacy":[URL],"stateless":[URL]}, and
// uses each URL in its era.
import { createInterface } from "node:readline";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import * as oauth from "oauth4webapi";

const algorithm = process.argv[2];
const keys = await oauth.generateKeyPair(algorithm);
const remap = { [oauth.modifyAssertion]: (header) => header.alg === "Ed25519" && (header.alg = "EdDSA") };
const proofs = oauth.DPoP({}, keys, remap);
console.log(await proofs.calculateThumbprint());

const used = new Set();
let challenged = 0;
let last; // request as it went out, with its proof

// proving sends requests with a proof each, and once more where a nonce is wanted.
function proving(token) {
  const options = { DPoP: proofs, [oauth.allowInsecureRequests]: true, [oauth.customFetch]: (url, init) => fetch((last = [url, init])[0], init) };
  return async (url, init = {}) => {
    const method = init.method ?? "GET";
    used.add(method);
    const headers = new Headers(init.headers);
    const send = () => oauth.protectedResourceRequest(token, method, new URL(url), headers, init.body, { ...options, signal: init.signal });
    try {
      return await send();
    } catch (e) {
      if (oauth.isDPoPNonceError(e)) {
        challenged++;
        return await send();
      }
      return e.response ?? Promise.reject(e);
    }
  };
}

async function use(url, token, mode) {
  const client = new Client({ name: "dpop", version: "1" }, { versionNegotiation: { mode } });
  const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: proving(token) });
  await client.connect(transport);
  const name = (await client.listTools()).tools[0].name;
  const result = await client.callTool({ name, arguments: {} });
  const [sent, init] = last;
  const again = await fetch(sent, { ...init, signal: undefined });
  await transport.terminateSession();
  await client.close();
  return `${mode.pin ?? mode}: ${name} ${result.content[0].text}, the same proof again ${again.status}`;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { token, legacy, stateless } = JSON.parse(line);
  for (const url of [...legacy, ...stateless]) {
    console.log(await use(url, token, legacy.includes(url) ? "legacy" : { pin: "2026-07-28" }));
    const bearer = await fetch(url, { method: "POST", headers: { authorization: `Bearer ${token}` } });
    console.log(`Bearer: ${bearer.status}`);
  }
  console.log(`${[...used].sort().join(" ")}, nonces asked for: ${challenged}`);
  process.exit(0);
}
