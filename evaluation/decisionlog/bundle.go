package decisionlog

import (
	"archive/zip"
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"
)

// A bundle is a ZIP file with entries of a log and everything needed to verify them.
// docs/reference/decision-log.md describes its members.
const (
	bundleEntries    = "entries.jsonl"
	bundleHashes     = "hashes"
	bundleCheckpoint = "checkpoint"
	bundleManifest   = "manifest"

	bundleFormat = "policy-service decision log bundle 1"
)

// WriteBundle writes a bundle of the entries that f selects, under a checkpoint of the current
// head. It returns the number of entries.
func (r *Reader) WriteBundle(ctx context.Context, w io.Writer, f Filter) (entries int64, err error) {
	b := &bundleWriter{zip: zip.NewWriter(w), reader: r}
	if err := b.write(ctx, f); err != nil {
		return 0, fmt.Errorf("write bundle: %w", err)
	}
	return int64(len(b.picked)), nil
}

type bundleWriter struct {
	zip    *zip.Writer
	reader *Reader
	size   int64   // size of the log
	picked []int64 // indexes of the selected entries
	sums   string  // one line "sha256 <hex> <name>\n" for each member
	more   func(*Checkpoint) ([]bundleMember, error)
}

// A bundleMember is a member beyond the four of every bundle.
type bundleMember struct {
	name    string
	content []byte
}

// write writes the bundle. It fails if the log prunes entries meanwhile: no entry under the
// bundle's checkpoint would explain the gap.
func (b *bundleWriter) write(ctx context.Context, f Filter) error {
	pruned := prunedParts(*b.reader.segments.Load())
	n, err := openNotary(b.reader.dir)
	if err != nil {
		return err
	}
	signed, err := n.checkpoint(b.reader.Head())
	if err != nil {
		return err
	}
	b.size = signed.Size
	if f.Until == 0 || f.Until > b.size {
		f.Until = b.size
	}
	for _, m := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{bundleEntries, func(w io.Writer) error { return b.entries(ctx, w, f) }},
		{bundleHashes, b.hashes},
		{bundleCheckpoint, func(w io.Writer) error { _, err := io.WriteString(w, signed.Note); return err }},
	} {
		if err := b.member(m.name, m.write); err != nil {
			return err
		}
	}
	if err := b.writeMore(signed); err != nil {
		return err
	}
	if prunedParts(*b.reader.segments.Load()) != pruned {
		return fmt.Errorf("%w meanwhile: try again", ErrPruned)
	}
	if err := b.manifest(n, f); err != nil {
		return err
	}
	return b.zip.Close()
}

// writeMore writes the further members in the order of their names.
func (b *bundleWriter) writeMore(signed *Checkpoint) error {
	if b.more == nil {
		return nil
	}
	more, err := b.more(signed)
	slices.SortFunc(more, func(x, y bundleMember) int { return strings.Compare(x.name, y.name) })
	for _, m := range more {
		if err == nil {
			err = b.member(m.name, func(w io.Writer) error { _, err := w.Write(m.content); return err })
		}
	}
	return err
}

// member writes a member of the bundle.
func (b *bundleWriter) member(name string, write func(io.Writer) error) error {
	out, err := b.zip.Create(name)
	if err != nil {
		return err
	}
	sum := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(out, sum), 1<<16)
	if err := write(buffered); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	b.sums += sumLine(sum, name)
	return nil
}

// sumLine returns the line of a member in the manifest.
func sumLine(sum hash.Hash, name string) string {
	return fmt.Sprintf("sha256 %x %s\n", sum.Sum(nil), name)
}

func (b *bundleWriter) entries(ctx context.Context, w io.Writer, f Filter) error {
	for line, err := range b.reader.Select(ctx, f) {
		if err != nil {
			return err
		}
		n, ok := lineIndex(line)
		if !ok {
			return damaged(-1, "has a line without an index")
		}
		if n >= b.size {
			return nil // appended after the checkpoint
		}
		b.picked = append(b.picked, n)
		if err := writeLine(w, line); err != nil {
			return err
		}
	}
	return nil
}

// hashes writes the hashes of cover in base64, one on each line.
func (b *bundleWriter) hashes(w io.Writer) error {
	var indexes []int64
	flush := func() error {
		hashes, err := b.reader.ReadHashes(indexes)
		indexes = indexes[:0]
		for _, hash := range hashes {
			if err == nil {
				_, err = fmt.Fprintln(w, hash)
			}
		}
		return err
	}
	for index := range cover(0, b.size, b.picked) {
		if indexes = append(indexes, index); len(indexes) == pageEntries {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// manifest writes the signed description of the bundle.
func (b *bundleWriter) manifest(n *notary, f Filter) error {
	selection, err := json.Marshal(f)
	if err != nil {
		return err
	}
	text, err := n.sign(manifestText(n.origin(), len(b.picked), string(selection), b.sums))
	if err != nil {
		return err
	}
	return b.member(bundleManifest, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// cover yields stored indexes of tree nodes that together make up the tree over the leaves [lo,
// hi): the picked leaves, and the largest complete nodes without a picked leaf. The order is that
// of the leaves.
func cover(lo, hi int64, picked []int64) func(yield func(int64) bool) {
	return func(yield func(int64) bool) { coverNode(lo, hi, picked, yield) }
}

func coverNode(lo, hi int64, picked []int64, yield func(int64) bool) bool {
	if hi <= lo {
		return true
	}
	level, whole := wholeNode(lo, hi)
	if whole && (level == 0 || len(picked) == 0) {
		return yield(tlog.StoredHashIndex(level, lo>>level))
	}
	mid := lo + leftSize(hi-lo)
	i, _ := slices.BinarySearch(picked, mid)
	return coverNode(lo, mid, picked[:i], yield) && coverNode(mid, hi, picked[i:], yield)
}

// wholeNode reports whether the node over [lo, hi) is a stored one, and at which level.
func wholeNode(lo, hi int64) (level int, whole bool) {
	for int64(1)<<level < hi-lo {
		level++
	}
	return level, int64(1)<<level == hi-lo
}

// leftSize returns the number of leaves below the left child of a node with n leaves, n at least 2:
// the largest power of two less than n (RFC 6962, section 2.1).
func leftSize(n int64) int64 {
	k := int64(1)
	for 2*k < n {
		k *= 2
	}
	return k
}

// manifestText returns the text of a bundle's manifest.
func manifestText(origin string, entries int, selection, sums string) string {
	return fmt.Sprintf("%s\n%s\nentries %d\nselection %s\n%s", bundleFormat, origin, entries, selection, sums)
}

// writeLine writes a line and a line feed.
func writeLine(w io.Writer, line []byte) error {
	if _, err := w.Write(line); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
