// A client of each official SDK calls a tool whose result the policies change:
// node results.mjs URL TOOL…
import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as v2 from "@modelcontextprotocol/client";

async function call(kind, agent, transport, tools) {
  await agent.connect(transport);
  await agent.listTools(); // from then on results are held against the output schemas
  for (const name of tools) {
    try {
      const result = await agent.callTool({ name, arguments: {} });
      console.log(`${kind} ${name}: ${JSON.stringify(result.structuredContent)} ${result.content[0].text}`);
    } catch (error) {
      console.log(`${kind} ${name}: ${error.code} ${error.data?.reason_code}`);
    }
  }
  await agent.close();
}

const [, , address, ...tools] = process.argv;
const url = new URL(address);
const info = { name: "agent", version: "1.0.0" };
await call("sdk", new v1.Client(info), new Transport1(url), tools);
for (const mode of ["legacy", { pin: "2026-07-28" }]) {
  const agent = new v2.Client(info, { versionNegotiation: { mode } });
  await call(`client ${mode.pin ?? mode}`, agent, new v2.StreamableHTTPClientTransport(url), tools);
}
