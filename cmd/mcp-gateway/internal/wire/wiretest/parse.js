// Tells what JSON.parse makes of texts: null where it refuses one. Text is its
// UTF-16, in hexadecimal; a number is ["n", text]; members are pairs, in order of
// their names. Without an argument it reads a JSON array of texts, in base64, and
// writes a line each. With the argument serve it is an MCP server, at a port that
// it says, and tells of all messages but tools/list at /told, once.
const units = (s) => Buffer.from(s, "utf16le").toString("hex");
const tell = (v) => {
  if (typeof v === "number") return ["n", String(v)];
  if (typeof v === "string") return ["s", units(v)];
  if (Array.isArray(v)) return ["a", v.map(tell)];
  if (v === null || typeof v !== "object") return ["v", v];
  return ["o", Object.keys(v).map((name) => [units(name), tell(v[name])]).sort((a, b) => (a[0] < b[0] ? -1 : 1))];
};
const read = (body) => JSON.parse(body.toString("utf8"));

function texts() {
  for (const text of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
    try {
      console.log(JSON.stringify(tell(read(Buffer.from(text, "base64")))));
    } catch {
      console.log("null");
    }
  }
}

const tools = ["take", "danger"].map((name) => ({ name, inputSchema: { type: "object" } }));
let told = [];

function answer(body) {
  const m = read(body);
  const result = (r) => JSON.stringify({ jsonrpc: "2.0", id: m.id, result: r });
  if (m.method === "tools/list") return result({ tools });
  told.push(tell({ method: m.method, params: m.params }));
  return result({ content: [] });
}

function serve() {
  const server = require("http").createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      let [status, body] = [400, ""];
      try {
        body = request.url === "/told" ? JSON.stringify(told.splice(0)) : answer(Buffer.concat(parts));
        status = 200;
      } catch {}
      response.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) }).end(body);
    });
  });
  server.listen(0, "127.0.0.1", () => console.error(`listening on http://127.0.0.1:${server.address().port}`));
}

process.argv[1] === "serve" ? serve() : texts();
