#!/usr/bin/env python3
"""Checks proofs about a log by RFC 9162, 2.1.3.2 and 2.1.4.2.

    proofs.py LINES < PROOFS

LINES has the entries of the log, one a line. PROOFS are JSON objects, one a
line, with "size" and "hashes" (base64), and "index" in a proof that an entry
is in a log of that size or "earlier" in one that the log continues a smaller
one. The roots are computed here. For each proof a line says good or bad.
"""
import base64
import hashlib
import json
import sys


def leaf(line):
    return hashlib.sha256(b"\0" + line).digest()


def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


class Log:
    """The leaves, and the hashes of whole subtrees."""

    def __init__(self, lines):
        self.levels = [[leaf(line) for line in lines]]
        while len(self.levels[-1]) > 1:
            below = self.levels[-1]
            self.levels.append([node(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)])

    def root(self, size):
        """The root of the first entries: whole subtrees, from the right."""
        out, at = None, size
        while at:
            level = (at & -at).bit_length() - 1
            whole = self.levels[level][(at >> level) - 1]
            out = whole if out is None else node(whole, out)
            at -= 1 << level
        return out or hashlib.sha256(b"").digest()


def included(log, index, size, path):
    if index >= size:
        return False
    fn, sn, r = index, size - 1, log.levels[0][index]
    for p in path:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            r = node(p, r)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node(r, p)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == log.root(size)


def continued(log, first, second, path):
    if first == second:
        return not path
    if first & (first - 1) == 0:
        path = [log.root(first)] + path
    if not path:
        return False
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node(c, fr), node(c, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node(sr, c)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == log.root(first) and sr == log.root(second)


def main():
    with open(sys.argv[1], "rb") as file:
        log = Log(file.read().split(b"\n")[:-1])
    for text in sys.stdin:
        proof = json.loads(text)
        path = [base64.b64decode(h) for h in proof["hashes"] or []]
        if "index" in proof:
            good = included(log, proof["index"], proof["size"], path)
        else:
            good = continued(log, proof["earlier"], proof["size"], path)
        print("good" if good else "bad")


main()
