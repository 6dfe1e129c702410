// An agent with a token: node workflow.mjs URL TOKEN
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token] = process.argv.slice(2);
const agent = new Client({ name: "workflow", version: "1.0.0" });
await agent.connect(
  new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }),
);
const { tools } = await agent.listTools();
console.log("tools:", tools.map((tool) => tool.name).join(" "));
for (const name of ["get_ticket", "delete_ticket", "create_ticket"]) {
  try {
    const result = await agent.callTool({
      name,
      arguments: { title: "Server outage" },
      _meta: { purpose: "Resolve user issue #555", workflow_id: "wf-abc", agent_invocation_id: "inv-789" },
    });
    console.log(`${name}: ${result.content[0].text}`);
  } catch (error) {
    console.log(`${name}: ${error.code} ${JSON.stringify(error.data)} ${error.message}`);
  }
}
await agent.close();
