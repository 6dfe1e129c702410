// A server of the SDK 2.x, without sessions, of both eras: node server2.mjs HOST:PORT [changed]
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, createMcpHandler } from "@modelcontextprotocol/server";
import { addTools, answered, listening, readBody } from "./failures.mjs";

const handle = toNodeHandler(
  createMcpHandler(() => {
    const server = new McpServer({ name: "field", version: "1" });
    addTools(server);
    return server;
  }),
);

createServer(async (req, res) => {
  const body = await readBody(req);
  if (!answered(body, res)) await handle(req, res, body);
}).listen(...listening(process.argv[2]));
