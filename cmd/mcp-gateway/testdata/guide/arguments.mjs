// A client of each official SDK calls tools with arguments that do not fit:
// node arguments.mjs URL
import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as v2 from "@modelcontextprotocol/client";

const url = new URL(process.argv[2]);
const info = { name: "agent", version: "1.0.0" };
const modern = { versionNegotiation: { mode: { pin: "2026-07-28" } } };
for (const [agent, transport] of [
  [new v1.Client(info), new Transport1(url)],
  [new v2.Client(info, modern), new v2.StreamableHTTPClientTransport(url)],
]) {
  await agent.connect(transport);
  for (const [name, args] of [
    ["count", { limit: 10 }],
    ["count", { limit: "10", all: "true" }],
    ["count", { limit: "ten", more: 1 }],
    ["nosuch", {}],
    ["count", { limit: 10, more: 1 }],
  ]) {
    try {
      const result = await agent.callTool({ name, arguments: args });
      console.log(`${result.isError ? "told" : "ran"} ${JSON.stringify(result.content[0].text)}`);
    } catch (error) {
      console.log(`thrown ${error.code} ${error.data?.reason_code} ${error.message}`);
    }
  }
  await agent.close();
}
