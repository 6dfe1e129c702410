// A client of each official SDK calls a tool that is denied: node codes.mjs URL
import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ErrorCode } from "@modelcontextprotocol/sdk/types.js";
import * as v2 from "@modelcontextprotocol/client";

async function denied(name, agent, transport, codes) {
  await agent.connect(transport);
  try {
    await agent.callTool({ name: "rm", arguments: {} });
  } catch (error) {
    const meaning = Object.keys(codes).find((key) => codes[key] === error.code);
    console.log(`${name}: ${error.code} ${meaning} ${error.data.reason_code} ${error.message}`);
  }
  await agent.close();
}

const url = new URL(process.argv[2]);
const info = { name: "agent", version: "1.0.0" };
await denied("sdk", new v1.Client(info), new Transport1(url), ErrorCode);
for (const mode of ["legacy", { pin: "2026-07-28" }]) {
  const agent = new v2.Client(info, { versionNegotiation: { mode } });
  await denied(`client ${mode.pin ?? mode}`, agent, new v2.StreamableHTTPClientTransport(url), v2.ProtocolErrorCode);
}
