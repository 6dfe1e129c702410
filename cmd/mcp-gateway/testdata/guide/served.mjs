// A client of each official SDK reads a file through the gateway: node served.mjs URL FILE
import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as v2 from "@modelcontextprotocol/client";

const [, , url, path] = process.argv;
const info = { name: "agent", version: "1.0.0" };
for (const [name, agent, transport] of [
  ["sdk", new v1.Client(info), new Transport1(new URL(url))],
  ["client", new v2.Client(info, { versionNegotiation: { mode: "auto" } }), new v2.StreamableHTTPClientTransport(new URL(url))],
]) {
  await agent.connect(transport);
  const result = await agent.callTool({ name: "read_text_file", arguments: { path } });
  console.log(`${name}: ${result.content[0].text}`);
  await agent.close();
}
