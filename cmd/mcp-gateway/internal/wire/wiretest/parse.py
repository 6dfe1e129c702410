"""Tells what json.loads makes of texts: null where it refuses one. Text is its
UTF-16, in hexadecimal; a number is ["n", text]; members are pairs, in order of
their names. Without an argument it reads a JSON array of texts, in base64, and
writes a line each. With the argument serve it is an MCP server, at a port that
it says, and tells of all messages but tools/list at /told, once."""
import base64
import http.server
import json
import sys


def units(s):
    return s.encode("utf-16-le", "surrogatepass").hex()


def tell(v):
    if isinstance(v, bool) or v is None:
        return ["v", v]
    if isinstance(v, str):
        return ["s", units(v)]
    if isinstance(v, (int, float)):
        return ["n", repr(v)]
    if isinstance(v, list):
        return ["a", [tell(e) for e in v]]
    return ["o", sorted([units(name), tell(v[name])] for name in v)]


def texts():
    for text in json.load(sys.stdin):
        try:
            print(json.dumps(tell(json.loads(base64.b64decode(text)))))
        except Exception:
            print("null")


tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("take", "danger")]
told = []


def answer(body):
    m = json.loads(body)
    result = {"tools": tools}
    if m["method"] != "tools/list":
        told.append(tell({"method": m["method"], "params": m["params"]}))
        result = {"content": []}
    return {"jsonrpc": "2.0", "id": m.get("id"), "result": result}


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a response in one piece

    def do_POST(self):
        status, out = 400, None
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            if self.path == "/told":
                out, told[:] = list(told), []
            else:
                out = answer(body)
            status = 200
        except Exception:
            pass
        text = json.dumps(out, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if sys.argv[1:] == ["serve"]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    print(f"listening on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()
else:
    texts()
