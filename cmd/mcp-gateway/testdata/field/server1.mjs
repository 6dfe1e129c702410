// A server of the SDK 1.x, with sessions and an event store: node server1.mjs HOST:PORT [changed]
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { InMemoryEventStore } from "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";
import { addTools, answered, listening, readBody } from "./failures.mjs";

const sessions = new Map();

createServer(async (req, res) => {
  const body = await readBody(req);
  if (answered(body, res)) return;
  let transport = sessions.get(req.headers["mcp-session-id"]);
  if (!transport && req.method === "POST" && isInitializeRequest(body)) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new InMemoryEventStore(),
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    const server = new McpServer({ name: "field", version: "1" });
    addTools(server);
    await server.connect(transport);
  }
  if (!transport) {
    res.writeHead(404, { "Content-Type": "application/json" });
    res.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32001, message: "Session not found" }, id: null }));
    return;
  }
  await transport.handleRequest(req, res, body);
}).listen(...listening(process.argv[2]));
