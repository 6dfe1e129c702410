// An MCP server with tickets, by the official SDK, on the port of the argument.
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function tickets() {
  const server = new McpServer({ name: "jira", version: "1.0.0" });
  for (const name of ["get_ticket", "create_ticket", "delete_ticket"]) {
    server.registerTool(name, { inputSchema: { title: z.string() } }, ({ title }) => ({
      content: [{ type: "text", text: `${name} has run: ${title}` }],
    }));
  }
  return server;
}

createServer(async (request, response) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on("close", () => transport.close());
  await tickets().connect(transport);
  await transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), "127.0.0.1");
