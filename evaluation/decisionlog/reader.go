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

// Limits of a page, which one read transaction copies out.
const (
	pageEntries = 1000
	pageBytes   = 1 << 20

	// releasedBytes is the size of a read after which its mapped memory is released.
	releasedBytes = pageBytes / 2
)

// QueryBytes is about the memory of a query whose entries are smaller than a page. It keeps that memory
// while its writer blocks.
const QueryBytes = 2 * pageBytes

// maxIndex is greater than every index.
const maxIndex = math.MaxInt64

// A Reader reads a log. Its methods are safe for concurrent use. None of them holds a transaction
// while the caller processes results.
type Reader struct {
	dir      string
	segments atomic.Pointer[[]*segmentReader] // in order of their entries; only the last may be written to
	head     atomic.Pointer[Head]

	ids idIndex

	flushed func(context.Context) error // for an open log: commits all accepted entries
	strict  bool                        // all accepted entries are below the head
	copied  *copiedSegment              // replaces the last segment of a log that was not closed cleanly; else nil
}

// OpenReadOnly opens the log in dir for reading. It returns [ErrLocked] if a process has the log
// open for appending. While the Reader is open, others can read but not append.
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

// newReader opens the last segment in dir, which prevents appending. It does not check the content.
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
		return nil, damaged(last.first, "is missing, with all later entries")
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

// stillLast checks, after a segment was locked, that no newer segment exists.
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

// Close closes the files after pending reads have ended.
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

// last returns the segment that is written to.
func (r *Reader) last() *segmentReader {
	parts := *r.segments.Load()
	return parts[len(parts)-1]
}

// Head returns the head. All entries below its size are on disk and readable. For a strict log
// these are all accepted entries, unless the disk is full.
func (r *Reader) Head() Head {
	r.flush()
	return r.committed()
}

// flush commits accepted entries if possible. A failure is reported to callers of Append.
func (r *Reader) flush() {
	if r.flushed != nil && r.strict {
		_ = r.flushed(context.Background())
	}
}

// committed returns the head of the entries in the segments.
func (r *Reader) committed() Head { return *r.head.Load() }

// ReadHashes returns hashes of tree nodes by stored index, and makes a Reader a [tlog.HashReader].
// It returns [ErrPruned] for pruned nodes over fewer than 256 entries.
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

// segmentOf returns the segment of the first node, and how many nodes from there on it contains.
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

// Export writes the lines of the entries in [from, until) to w, each with a line feed. It returns
// their number. A negative until, or one beyond the head, means the head. Export skips pruned
// entries. A slow w delays no other caller.
func (r *Reader) Export(ctx context.Context, w io.Writer, from, until int64) (n int64, err error) {
	if size := r.Head().Size; until < 0 || until > size {
		until = size
	}
	return exportLines(w, r.lines(ctx, max(from, 0), until))
}

// ExportSelected is [Reader.Export] for the entries that f selects.
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

// lines yields the lines of the entries in [from, until) and skips pruned ones. A line is valid
// until the next iteration, which reuses its memory.
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

// A page holds the values stored under consecutive indexes.
type page struct {
	first  int64
	values [][]byte
	copied []byte // the values, concatenated
}

// pages yields the values stored under the indexes in [from, until) and skips pruned ones. An error
// is the last it yields, with the values before the missing one. A page is valid until the next
// iteration. All pages share one buffer: entries can be so large that a new buffer for each page
// would dominate the memory of the process.
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

// page replaces the content of out with the first values of [from, until), read in one short
// transaction. On error, out has the values before the missing one.
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

// add appends a value. Its capacity is limited so that appending to one value cannot overwrite the
// next.
func (p *page) add(value []byte) {
	begin := len(p.copied)
	p.copied = append(p.copied, value...)
	p.values = append(p.values, slices.Clip(p.copied[begin:]))
}

// after moves c to the first key after entry n-1 of a segment that begins at first. So it finds
// every following key, even one that is not an index.
func after(c *bbolt.Cursor, n, first int64) (k, v []byte) {
	if n == first {
		return c.First()
	}
	if k, v := c.Seek(key(n - 1)); !bytes.Equal(k, key(n-1)) {
		return k, v
	}
	return c.Next()
}
