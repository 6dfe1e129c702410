package decisionlog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"slices"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

// A page is what one read transaction copies out.
const (
	pageEntries = 1000
	pageBytes   = 1 << 20

	// releasedBytes is how much has to be read at once for the map to be released.
	releasedBytes = pageBytes / 2
)

// maxIndex is behind every entry.
const maxIndex = math.MaxInt64

// A Reader reads a log. Its methods are safe for concurrent use, and none of
// them holds a transaction while its caller is busy.
type Reader struct {
	dir      string
	segments atomic.Pointer[[]*segmentReader] // in the order of their entries; the last is being written or was last
	head     atomic.Pointer[Head]

	ids idIndex

	flushed func(context.Context) error // of a log that is open: has all that was accepted committed
	strict  bool                        // all that was accepted is below the head
	copied  *copiedSegment              // stands for the last segment of a log that was not closed; else nil
}

// OpenReadOnly opens the log in dir while no one appends to it; else it
// returns [ErrLocked]. Meanwhile others can read, but no one can append.
func OpenReadOnly(dir string) (*Reader, error) {
	r, err := newReader(dir)
	if err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	_, err = r.load()
	if err == nil {
		err = r.setSkipPageCheck(false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open decision log: %w", err), r.Close())
	}
	return r, nil
}

// newReader opens the last segment in dir, which keeps others from appending,
// but does not look at what is in it.
func newReader(dir string) (*Reader, error) {
	parts, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, &fs.PathError{Op: "open", Path: segmentFile(dir, 0, segmentExt), Err: fs.ErrNotExist}
	}
	last := parts[len(parts)-1]
	if last.pruned() {
		return nil, damaged(last.first, "is missing, with all behind it")
	}
	if err := last.open(); err != nil {
		return nil, err
	}
	r := &Reader{dir: dir}
	r.segments.Store(&parts)
	err = stillLast(dir, last)
	if err == nil {
		err = r.readJournaled()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// stillLast checks, once a segment is locked, that no one has gone on to the
// next before it was.
func stillLast(dir string, last *segmentReader) error {
	parts, err := listSegments(dir)
	if err != nil {
		return err
	}
	if parts[len(parts)-1].first != last.first {
		return fmt.Errorf("%s: %w", last.path, ErrLocked)
	}
	return nil
}

// Close closes the files. It waits for reads that have begun.
func (r *Reader) Close() error {
	var errs []error
	for _, p := range *r.segments.Load() {
		errs = append(errs, p.closeForGood())
	}
	if r.copied != nil {
		errs = append(errs, r.copied.remove())
	}
	return errors.Join(errs...)
}

// last returns the part that is being written.
func (r *Reader) last() *segmentReader {
	parts := *r.segments.Load()
	return parts[len(parts)-1]
}

// Head returns the head: all entries below its size are on disk, and here to be
// read. Of a strict log these are all that were accepted, as long as the disk
// has room for them.
func (r *Reader) Head() Head {
	r.flush()
	return r.committed()
}

// flush has what was accepted committed, if it can be. Who appends is told if
// not.
func (r *Reader) flush() {
	if r.flushed != nil && r.strict {
		_ = r.flushed(context.Background())
	}
}

// committed returns the head of what is in the segments.
func (r *Reader) committed() Head { return *r.head.Load() }

// ReadHashes returns the hashes of nodes of the tree by their stored index; it
// makes a Reader a [tlog.HashReader], from which tlog makes proofs. It returns
// [ErrPruned] for nodes of fewer than 256 entries that were pruned.
func (r *Reader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	parts := *r.segments.Load()
	hashes := make([]tlog.Hash, 0, len(indexes))
	for len(indexes) > 0 {
		p, n := segmentOf(parts, indexes)
		some, err := p.readHashes(indexes[:n])
		if err != nil {
			return nil, err
		}
		hashes, indexes = append(hashes, some...), indexes[n:]
	}
	return hashes, nil
}

// segmentOf returns the part that has the first of the nodes, and how many
// nodes from there on it has.
func segmentOf(parts []*segmentReader, indexes []int64) (*segmentReader, int) {
	p, until := segmentAt(parts, lastLeaf(indexes[0]))
	for i, index := range indexes {
		if last := lastLeaf(index); last < p.first || last >= until {
			return p, i
		}
	}
	return p, len(indexes)
}

// lastLeaf returns the index of the entry that completes a node.
func lastLeaf(index int64) int64 {
	level, n := tlog.SplitStoredHashIndex(index)
	return (n+1)<<level - 1
}

// Export writes the lines of the entries from index from on and below until to
// w, each with a line feed, and returns how many they are. An until that is
// negative or beyond the head means the head. Pruned entries are left out. w
// may be as slow as it likes.
func (r *Reader) Export(ctx context.Context, w io.Writer, from, until int64) (n int64, err error) {
	if size := r.Head().Size; until < 0 || until > size {
		until = size
	}
	return exportLines(w, r.lines(ctx, max(from, 0), until))
}

// ExportSelected is Export for the entries that f selects.
func (r *Reader) ExportSelected(ctx context.Context, w io.Writer, f Filter) (n int64, err error) {
	return exportLines(w, r.Select(ctx, f))
}

func exportLines(w io.Writer, lines iter.Seq2[[]byte, error]) (n int64, err error) {
	out := bufio.NewWriterSize(w, 1<<16)
	for line, err := range lines {
		if err == nil {
			err = writeLine(out, line)
		}
		if err != nil {
			return n, fmt.Errorf("export: %w", err)
		}
		n++
	}
	if err := out.Flush(); err != nil {
		return n, fmt.Errorf("export: %w", err)
	}
	return n, nil
}

// lines yields the lines of the entries in [from, until) that are not pruned. A
// line is valid until the next is yielded: both are read into the same memory.
func (r *Reader) lines(ctx context.Context, from, until int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for page, err := range r.pages(ctx, from, until) {
			for i, value := range page.values {
				_, line, err := split(page.first+int64(i), value)
				if !yield(line, err) || err != nil {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// A page is what is stored under some indexes in a row.
type page struct {
	first  int64
	values [][]byte
	copied []byte // the values, one behind the other
}

// pages yields what is stored under the indexes in [from, until), of which
// pruned ones are left out. With an error, the last it yields, come the values
// before the one that is not there. All pages are read into the same memory, and
// each is valid until the next is yielded: entries can be so large that a new copy
// of each page costs more memory than all else that the process has.
func (r *Reader) pages(ctx context.Context, from, until int64) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		var got page
		for from < until {
			if ctx.Err() != nil {
				yield(page{}, context.Cause(ctx))
				return
			}
			p, end := segmentAt(*r.segments.Load(), from)
			err := p.page(&got, from, min(until, end))
			if errors.Is(err, ErrPruned) {
				from = end
				continue
			}
			if !yield(got, err) || err != nil {
				return
			}
			from += int64(len(got.values))
		}
	}
}

// page copies the first values of [from, until) out of one short transaction, in
// the place of what out has. With an error these are the values before the one
// that is missing.
func (p *segmentReader) page(out *page, from, until int64) error {
	until = min(until, from+pageEntries)
	out.first, out.values, out.copied = from, out.values[:0], out.copied[:0]
	return p.view(func(entries, _ *bbolt.Bucket) error {
		c := entries.Cursor()
		k, v := after(c, from, p.first)
		for n := from; n < until && len(out.copied) < pageBytes; n++ {
			if !bytes.Equal(k, key(n)) {
				return damaged(n, "is missing")
			}
			out.add(v)
			k, v = c.Next()
		}
		if len(out.copied) >= releasedBytes {
			release(entries.Tx())
		}
		return nil
	})
}

// add copies a value behind the others. What is appended to one does not
// overwrite the next.
func (p *page) add(value []byte) {
	begin := len(p.copied)
	p.copied = append(p.copied, value...)
	p.values = append(p.values, slices.Clip(p.copied[begin:]))
}

// after moves c behind entry n-1 of a segment that begins at first, so that it
// meets every key from there on, whether it is an index or not.
func after(c *bbolt.Cursor, n, first int64) (k, v []byte) {
	if n == first {
		return c.First()
	}
	if k, v := c.Seek(key(n - 1)); !bytes.Equal(k, key(n-1)) {
		return k, v
	}
	return c.Next()
}
