// Verify-log verifies a bundle of the decision log of policy-service with the
// public key of the log and nothing else. It uses Go's standard library alone
// and none of the code that wrote the bundle: docs/reference/decision-log.md describes
// the format, and whoever does not trust this program writes another.
//
//	verify-log BUNDLE KEYFILE
//
// It prints what it verified, or exits with 4 and says which entry is the
// first that is not as it was, where that can be told.
package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: verify-log BUNDLE KEYFILE")
		os.Exit(1)
	}
	keys, err := os.ReadFile(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify-log:", err)
		os.Exit(1)
	}
	verified, err := verify(os.Args[1], strings.Fields(string(keys)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify-log:", err)
		os.Exit(4)
	}
	fmt.Println(verified)
}

// verify verifies the bundle in a file, and returns a line about it.
func verify(path string, keys []string) (string, error) {
	archive, err := zip.OpenReader(path)
	if err != nil {
		return "", err
	}
	defer archive.Close()
	b := bundle{files: make(map[string]*zip.File), sums: make(map[string]hash.Hash)}
	for _, file := range archive.File {
		if b.files[file.Name] != nil {
			return "", fmt.Errorf("there are two members %q", file.Name)
		}
		b.files[file.Name] = file
	}
	checkpoint, err := b.note("checkpoint", keys)
	if err != nil {
		return "", err
	}
	if len(checkpoint) < 3 {
		return "", errors.New("the checkpoint is cut off")
	}
	origin, root := checkpoint[0], checkpoint[2]
	size, err := strconv.ParseInt(checkpoint[1], 10, 64)
	if err != nil || size < 0 {
		return "", fmt.Errorf("the checkpoint has the size %q", checkpoint[1])
	}
	w, err := b.walk(size)
	if err != nil {
		return "", err
	}
	if got := base64.StdEncoding.EncodeToString(w.total); got != root {
		return "", fmt.Errorf("the root is %s, that of the checkpoint %s", got, root)
	}
	if err := b.manifest(keys, origin, w.entries); err != nil {
		return "", err
	}
	noun := "entries"
	if w.entries == 1 {
		noun = "entry"
	}
	return fmt.Sprintf("verified: %d %s (%d to %d) of the %d in %s\nroot %s", w.entries, noun, w.first, w.last, size, origin, root), nil
}

// A bundle is the members of a ZIP file, and the SHA-256 of those that were
// read.
type bundle struct {
	files map[string]*zip.File
	sums  map[string]hash.Hash
}

func (b *bundle) open(name string) (*bufio.Reader, error) {
	file, found := b.files[name]
	if !found {
		return nil, fmt.Errorf("there is no %s", name)
	}
	content, err := file.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b.sums[name] = sha256.New()
	return bufio.NewReader(io.TeeReader(content, b.sums[name])), nil
}

// note returns the lines of a member that one of the keys has signed. Its text
// ends with an empty line, and each signature behind that is a line
// "— name base64(key hash, 4 bytes ‖ signature)".
func (b *bundle) note(name string, keys []string) ([]string, error) {
	r, err := b.open(name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil || len(content) == 1<<20 {
		return nil, fmt.Errorf("%s is too long or cannot be read: %v", name, err)
	}
	end := bytes.LastIndex(content, []byte("\n\n"))
	if end < 0 {
		return nil, fmt.Errorf("%s is not signed", name)
	}
	text, signatures := content[:end+1], string(content[end+2:])
	for line := range strings.Lines(signatures) {
		for _, key := range keys {
			if signed(text, strings.TrimSuffix(line, "\n"), key) {
				return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
			}
		}
	}
	return nil, fmt.Errorf("%s is not signed with the key", name)
}

// signed reports whether a line is the signature of text by a key, which is
// "name+hash+base64(1 ‖ ed25519 public key)".
func signed(text []byte, line, key string) bool {
	name, rest, _ := strings.Cut(key, "+")
	hexHash, encoded, _ := strings.Cut(rest, "+")
	public, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(public) != 1+ed25519.PublicKeySize || public[0] != 1 {
		return false
	}
	sum := sha256.Sum256(append([]byte(name+"\n"), public...))
	if fmt.Sprintf("%08x", binary.BigEndian.Uint32(sum[:])) != hexHash {
		return false
	}
	encoded, found := strings.CutPrefix(line, "— "+name+" ")
	signature, err := base64.StdEncoding.DecodeString(encoded)
	return found && err == nil && len(signature) == 4+ed25519.SignatureSize && bytes.Equal(signature[:4], sum[:4]) &&
		ed25519.Verify(public[1:], text, signature[4:])
}

// manifest holds the bundle against what the log has signed that it is.
func (b *bundle) manifest(keys []string, origin string, entries int) error {
	lines, err := b.note("manifest", keys)
	if err != nil {
		return err
	}
	want := []string{"policy-service decision log bundle 1", origin, fmt.Sprintf("entries %d", entries), ""}
	if len(lines) > 3 && strings.HasPrefix(lines[3], "selection ") {
		want[3] = lines[3]
	}
	further, err := b.further()
	if err != nil {
		return err
	}
	for _, name := range append([]string{"entries.jsonl", "hashes", "checkpoint"}, further...) {
		want = append(want, fmt.Sprintf("sha256 %x %s", b.sums[name].Sum(nil), name))
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		return errors.New("the bundle is not what its manifest says")
	}
	return nil
}

// further reads the members that evidence has beyond the four of every bundle, and returns their names in
// order.
func (b *bundle) further() (names []string, err error) {
	for name := range b.files {
		if b.sums[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		content, err := b.open(name)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return names, nil
}

// A walk computes the root of a Merkle tree (RFC 6962) from its left to its
// right. hashes has a hash for each entry of the bundle, and one for each of
// the largest complete subtrees without an entry of the bundle.
type walk struct {
	lines, hashes *bufio.Reader
	line          []byte // the next, and its index: math.MaxInt64 behind the last
	index         int64
	entries       int
	first, last   int64
	total         []byte
}

func (b *bundle) walk(size int64) (*walk, error) {
	lines, err := b.open("entries.jsonl")
	if err != nil {
		return nil, err
	}
	hashes, err := b.open("hashes")
	if err != nil {
		return nil, err
	}
	empty := sha256.Sum256(nil)
	w := &walk{lines: lines, hashes: hashes, index: -1, first: -1, last: -1, total: empty[:]}
	if err := w.next(); err != nil {
		return nil, err
	}
	if size > 0 {
		if w.total, err = w.root(0, size); err != nil {
			return nil, err
		}
	}
	if w.line != nil {
		return nil, fmt.Errorf("entry %d is beyond the checkpoint", w.index)
	}
	if _, err := hashes.ReadByte(); err != io.EOF {
		return nil, errors.New("there are hashes that belong nowhere")
	}
	return w, nil
}

// next reads the next line, which begins with its index.
func (w *walk) next() error {
	line, err := readLine(w.lines, 16<<20+64)
	if err == io.EOF && len(line) == 0 {
		w.line, w.index = nil, math.MaxInt64
		return nil
	}
	if err != nil {
		return fmt.Errorf("entry %d, or one behind it, cannot be read: %w", w.last+1, err)
	}
	w.line = line[:len(line)-1]
	number, _, _ := strings.Cut(strings.TrimPrefix(string(w.line), `{"index":`), ",")
	index, err := strconv.ParseInt(number, 10, 64)
	if err != nil || index <= w.index || !bytes.HasPrefix(w.line, fmt.Appendf(nil, `{"index":%d,`, index)) {
		return fmt.Errorf("entry %d, or one behind it, does not have its index", w.last+1)
	}
	w.index = index
	return nil
}

// readLine reads a line, with its line feed. No longer one is ever recorded, and
// none is read: a small ZIP file can have one of any length.
func readLine(r *bufio.Reader, most int) (line []byte, err error) {
	for err = bufio.ErrBufferFull; err == bufio.ErrBufferFull; {
		var part []byte
		part, err = r.ReadSlice('\n')
		if line = append(line, part...); len(line) > most {
			return nil, errors.New("a line is too long")
		}
	}
	return line, err
}

// root returns the hash over the leaves lo to hi-1.
func (w *walk) root(lo, hi int64) ([]byte, error) {
	half := int64(1) // the largest power of two that is less than hi-lo, or 1
	for 2*half < hi-lo {
		half *= 2
	}
	switch {
	case hi-lo == 1 && w.index == lo:
		return w.leaf()
	case (hi-lo == 1 || hi-lo == 2*half) && w.index >= hi:
		return w.hash()
	}
	left, err := w.root(lo, lo+half)
	if err != nil {
		return nil, err
	}
	right, err := w.root(lo+half, hi)
	sum := sha256.Sum256(bytes.Join([][]byte{{1}, left, right}, nil))
	return sum[:], err
}

func (w *walk) hash() ([]byte, error) {
	line, err := readLine(w.hashes, 64)
	if err != nil {
		return nil, fmt.Errorf("the hashes end too soon: %w", err)
	}
	hash, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(string(line), "\n"))
	if err != nil || len(hash) != sha256.Size {
		return nil, fmt.Errorf("%q is no hash", line)
	}
	return hash, nil
}

func (w *walk) leaf() ([]byte, error) {
	want, err := w.hash()
	if err != nil {
		return nil, err
	}
	got := sha256.Sum256(append([]byte{0}, w.line...))
	if !bytes.Equal(got[:], want) {
		return nil, fmt.Errorf("entry %d is not what was recorded", w.index)
	}
	if w.entries == 0 {
		w.first = w.index
	}
	w.entries++
	w.last = w.index
	return want, w.next()
}
