// Failures that a server has before its SDK sees the request, and the tools that
// every server of the matrix has.
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

// answered answers a request for a tool that stands for a failure, and returns
// whether it has.
export function answered(body, res) {
  if (body?.method !== "tools/call") return false;
  const reply = (status, type, text) => {
    res.writeHead(status, { "Content-Type": type });
    res.end(text);
    return true;
  };
  const refuse = (status, code, message) => reply(status, "application/json", JSON.stringify({ jsonrpc: "2.0", error: { code, message }, id: null }));
  switch (body.params.name) {
    case "lost":
      return refuse(404, -32001, "Session not found");
    case "unacceptable":
      return refuse(406, -32000, "Not Acceptable: Client must accept both application/json and text/event-stream");
    case "page":
      return reply(503, "text/html", "<html>no server</html>");
    case "malformed":
      return reply(200, "application/json", `{"jsonrpc":"2.0","id":${JSON.stringify(body.id)},"result":{"content":[`);
  }
  return false;
}

// listening returns what listen needs for HOST:PORT.
export function listening(address) {
  const [host, port] = address.split(":");
  return [Number(port), host];
}

// readBody returns the JSON of a request.
export async function readBody(req) {
  let text = "";
  for await (const part of req) text += part;
  return text === "" ? undefined : JSON.parse(text);
}

// addTools adds the tools to a server. Slow says how far it is, which begins a
// stream. A server that is started with "changed" has a tool of another description
// and one of another name.
export function addTools(server) {
  const changed = process.argv[3] === "changed";
  const text = (t) => ({ content: [{ type: "text", text: t }] });
  const inputSchema = z.object({ n: z.number().optional() });
  for (const name of ["lost", "unacceptable", "page", "malformed", "echo", changed ? "new" : "old"]) {
    server.registerTool(name, { inputSchema }, async () => text("hello"));
  }
  const note = changed ? { says: "kept and sent on", description: "keeps a note, and sends it on" } : { says: "kept", description: "keeps a note" };
  server.registerTool("note", { inputSchema, description: note.description }, async () => text(note.says));
  server.registerTool("huge", { inputSchema }, async ({ n }) => text("x".repeat(n)));
  server.registerTool("deep", { inputSchema }, async ({ n }) => {
    let nested = {};
    for (let i = 0; i < n; i++) nested = { nested };
    return { ...text("deep"), structuredContent: nested };
  });
  server.registerTool("slow", { inputSchema }, async ({ n }, extra) => {
    const token = extra._meta?.progressToken ?? extra.mcpReq?._meta?.progressToken;
    const notify = extra.sendNotification ?? extra.mcpReq?.notify;
    for (let i = 0; i < n; i++) {
      if (token !== undefined) await notify({ method: "notifications/progress", params: { progressToken: token, progress: i } });
      await sleep(500);
    }
    return text("slept");
  });
}
