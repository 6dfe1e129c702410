// A client that a test drives by lines of JSON on standard input, and that says
// what came of each on a line of standard output.
import { createInterface } from "node:readline";
import { z } from "zod";

// Reconnecting is how the clients resume streams: soon, so that a test is short.
export const reconnecting = {
  reconnectionOptions: { initialReconnectionDelay: 500, maxReconnectionDelay: 1000, reconnectionDelayGrowFactor: 1, maxRetries: 10 },
};

// shown says in one line what a person sees of an error: the status, or else the
// code, and the message.
function shown(e) {
  const body = /\{.*\}/s.exec(e.message)?.[0];
  let message = e.message;
  try {
    message = JSON.parse(body).error.message;
  } catch {}
  return `error ${e.status ?? e.code ?? e.constructor.name}: ${message.replace(/^MCP error -?\d+: /, "")}`;
}

// Call calls a tool with options, connect returns a client.
export async function converse(url, connect, call) {
  let client;
  const commands = {
    connect: async () => {
      await client?.close().catch(() => {});
      client = await connect(new URL(url));
      return "connected";
    },
    call: async ({ name, n, timeout }) => {
      let signs = 0;
      const options = { timeout, onprogress: () => signs++ };
      const result = await call(client, { name, arguments: { n } }, options);
      const text = result.content?.[0]?.text ?? JSON.stringify(result);
      return (result.isError ? "tool error: " : "") + (text.length > 100 ? `${text.length} characters` : text) + (signs ? `, progress ${signs}` : "");
    },
    list: async () => (await client.listTools()).tools.map((tool) => tool.name).sort().join(" "),
    probe: async () => JSON.stringify(await client.request({ method: "field/unknown" }, z.any())),
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    let said;
    try {
      said = await commands[command.do](command);
    } catch (e) {
      said = shown(e);
    }
    console.log(JSON.stringify(said));
  }
  process.exit(0);
}
