"""Reads a JSON array of texts and writes, a line each, what json.loads makes of
them: null where it refuses one. Text is its UTF-16, in hexadecimal; a number is
["n", text]; members are pairs, in order of their names."""
import base64
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


for text in json.load(sys.stdin):
    try:
        print(json.dumps(tell(json.loads(base64.b64decode(text)))))
    except Exception:
        print("null")
