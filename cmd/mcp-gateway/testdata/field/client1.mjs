// A client of the SDK 1.x: node client1.mjs URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { converse, reconnecting } from "./converse.mjs";

async function connect(url) {
  const client = new Client({ name: "field", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(url, reconnecting));
  return client;
}

await converse(process.argv[2], connect, (client, params, options) => client.callTool(params, undefined, options));
