#!/usr/bin/env python3
"""Verifies a bundle of the decision log of policy-service.

    verify_log.py BUNDLE KEYFILE

It is written from docs/reference/decision-log.md alone and needs nothing but Python 3.
It prints what it verified, or exits with 4 and says which entry is the first
that is not as it was, where that can be told.
"""
import base64
import binascii
import hashlib
import sys
import zipfile
import zlib

MEMBERS = ("entries.jsonl", "hashes", "checkpoint", "manifest")


class Fault(Exception):
    pass


# Ed25519 (RFC 8032, 5.1), verification only.
P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
BASE_Y = 4 * pow(5, P - 2, P) % P


def point(y, sign):
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - x2) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(n, p):
    out = (0, 1, 1, 0)
    while n:
        if n & 1:
            out = add(out, p)
        p, n = add(p, p), n >> 1
    return out


def decode_point(raw):
    y = int.from_bytes(raw, "little")
    return point(y & ((1 << 255) - 1), y >> 255)


def ed25519_verify(public, message, signature):
    a, r = decode_point(public), decode_point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= Q:
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    left = times(s, point(BASE_Y, 0))
    right = add(r, times(int.from_bytes(digest, "little") % Q, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


def decode64(text):
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def signed(text, line, key):
    name, _, rest = key.partition("+")
    hex_hash, _, encoded = rest.partition("+")
    public = decode64(encoded)
    if len(public) != 33 or public[0] != 1:
        return False
    key_hash = hashlib.sha256(name.encode() + b"\n" + public).digest()[:4]
    start = "— " + name + " "
    signature = decode64(line[len(start):]) if line.startswith(start) else b""
    if key_hash.hex() != hex_hash or len(signature) != 68 or signature[:4] != key_hash:
        return False
    return ed25519_verify(public[1:], text, signature[4:])


def read_note(content, name, keys):
    end = content.rfind(b"\n\n")
    if end < 0:
        raise Fault(f"{name} is not signed")
    text = content[: end + 1]
    for line in content[end + 2:].decode(errors="replace").split("\n"):
        if any(signed(text, line, key) for key in keys):
            return text.decode()[:-1].split("\n")
    raise Fault(f"{name} is not signed with the key")


class Member:
    """A member of the bundle, read line by line: a small ZIP file can have a
    line of any length, and the log has none that is longer than its bound."""

    def __init__(self, file, most):
        self.file, self.most, self.sum = file, most, hashlib.sha256()

    def line(self):
        """The next line with its line feed, if it has one; b"" at the end."""
        line = self.file.readline(self.most + 1)
        self.sum.update(line)
        if len(line) > self.most:
            raise Fault("a line is too long")
        return line


class Walk:
    """Computes the root of the tree (RFC 6962) from its left to its right."""

    def __init__(self, entries, hashes):
        self.entries, self.hashes = entries, hashes
        self.count, self.index, self.first, self.last = 0, -1, -1, -1
        self.read()

    def read(self):
        where = f"entry {self.last + 1}, or one behind it,"
        try:
            self.line = self.entries.line()
        except Fault as fault:
            raise Fault(f"{where} cannot be read: {fault}") from fault
        if not self.line:
            self.index = None
            return
        if not self.line.endswith(b"\n"):
            raise Fault(f"{where} cannot be read: it has no end")
        self.line = self.line[:-1]
        number = self.line[len(b'{"index":'):].split(b",", 1)[0][:20]
        if not number.isdigit() or not self.line.startswith(b'{"index":%d,' % int(number)) or int(number) <= self.index:
            raise Fault(f"{where} does not have its index")
        self.index = int(number)

    def hash(self):
        line = self.hashes.line()
        if not line.endswith(b"\n"):
            raise Fault("the hashes end too soon")
        out = decode64(line[:-1])
        if len(out) != 32:
            raise Fault(f"{line!r} is no hash")
        return out

    def leaf(self):
        want = self.hash()
        if hashlib.sha256(b"\0" + self.line).digest() != want:
            raise Fault(f"entry {self.index} is not what was recorded")
        if self.first < 0:
            self.first = self.index
        self.last, self.count = self.index, self.count + 1
        self.read()
        return want

    def root(self, lo, hi):
        half = 1
        while 2 * half < hi - lo:
            half *= 2
        if hi - lo == 1 and self.index == lo:
            return self.leaf()
        if hi - lo in (1, 2 * half) and (self.index is None or self.index >= hi):
            return self.hash()
        left = self.root(lo, lo + half)
        return hashlib.sha256(b"\1" + left + self.root(lo + half, hi)).digest()


def digest(archive, name):
    """The hash of a member that evidence has beyond the four of every bundle."""
    out = hashlib.sha256()
    with archive.open(name) as file:
        while part := file.read(1 << 16):
            out.update(part)
    return out.hexdigest()


def verify(path, keys):
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(set(names)) != len(names) or not set(MEMBERS) <= set(names):
            raise Fault("a bundle has four members, and others only once")
        further = sorted(set(names) - set(MEMBERS), key=str.encode)
        notes = {}
        for name in ("checkpoint", "manifest"):
            with archive.open(name) as file:
                notes[name] = file.read(1 << 20)
            if len(notes[name]) == 1 << 20:
                raise Fault(f"{name} is too long")
        origin, size, root = read_note(notes["checkpoint"], "checkpoint", keys)[:3]
        with archive.open("entries.jsonl") as lines, archive.open("hashes") as hashes:
            entries, hashes = Member(lines, (16 << 20) + 64), Member(hashes, 64)
            walk = Walk(entries, hashes)
            got = walk.root(0, int(size)) if int(size) else hashlib.sha256(b"").digest()
            if walk.index is not None:
                raise Fault(f"entry {walk.index} is beyond the checkpoint")
            if hashes.line():
                raise Fault("there are hashes that belong nowhere")
        further_sums = [digest(archive, name) for name in further]
    if base64.b64encode(got).decode() != root:
        raise Fault("the root is not that of the checkpoint")
    manifest = read_note(notes["manifest"], "manifest", keys)
    want = ["policy-service decision log bundle 1", origin, f"entries {walk.count}", manifest[3] if len(manifest) > 3 else ""]
    sums = (entries.sum.hexdigest(), hashes.sum.hexdigest(), hashlib.sha256(notes["checkpoint"]).hexdigest())
    want += [f"sha256 {sum} {name}" for sum, name in zip(sums, MEMBERS)]
    want += [f"sha256 {sum} {name}" for sum, name in zip(further_sums, further)]
    if manifest != want or not want[3].startswith("selection "):
        raise Fault("the bundle is not what its manifest says")
    noun = "entry" if walk.count == 1 else "entries"
    return f"verified: {walk.count} {noun} ({walk.first} to {walk.last}) of the {size} in {origin}\nroot {root}"


def main():
    if len(sys.argv) != 3:
        print("usage: verify_log.py BUNDLE KEYFILE", file=sys.stderr)
        return 1
    with open(sys.argv[2], encoding="utf-8") as file:
        keys = file.read().split()
    try:
        print(verify(sys.argv[1], keys))
    except (Fault, zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, NotImplementedError, RuntimeError, ValueError, OSError) as fault:
        print("verify_log:", fault, file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
