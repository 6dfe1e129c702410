// A client of the SDK 2.x, which negotiates the version: node client2.mjs URL
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { converse, reconnecting } from "./converse.mjs";

async function connect(url) {
  const client = new Client({ name: "field", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(url, reconnecting));
  return client;
}

await converse(process.argv[2], connect, (client, params, options) => client.callTool(params, options));
