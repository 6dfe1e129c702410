// A host at an SDK's defaults, whose call waits for a person. When the gateway says
// that the call still waits, the host makes it again: node wait.mjs URL ERA
import * as v1 from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import * as v2 from "@modelcontextprotocol/client";

const [address, era] = process.argv.slice(2);
const url = new URL(address);
const info = { name: "host", version: "1.0.0" };
const capabilities = { elicitation: { form: {} } };
let dialogs = 0;
let calls = 0;
const show = async () => {
  dialogs++;
  return { action: "accept", content: { wait: true } };
};
let agent;
if (era === "sessions") {
  agent = new v1.Client(info, { capabilities });
  agent.setRequestHandler(ElicitRequestSchema, show);
  await agent.connect(new Transport1(url));
} else {
  agent = new v2.Client(info, { capabilities, versionNegotiation: { mode: { pin: "2026-07-28" } } });
  agent.setRequestHandler("elicitation/create", show);
  await agent.connect(new v2.StreamableHTTPClientTransport(url));
}
for (;;) {
  calls++;
  try {
    const result = await agent.callTool({ name: "write", arguments: { text: `TypeScript ${era}` } });
    console.log(`${result.content[0].text}, ${dialogs} dialogs, ${calls > 1 ? "several calls" : "one call"}`);
    break;
  } catch (error) {
    if (error.data?.reason_code !== "approval_pending") throw error;
  }
}
await agent.close();
