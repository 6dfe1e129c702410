package decisionlog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

// A page is what one read transaction copies out.
const (
	pageEntries = 1000
	pageBytes   = 1 << 20
)

// A Reader reads a log. Its methods are safe for concurrent use, and none of
// them holds a transaction while its caller is busy.
type Reader struct {
	dir  string
	db   *bbolt.DB
	head atomic.Pointer[Head]
}

// OpenReadOnly opens the log in dir while no one appends to it; else it
// returns [ErrLocked]. Meanwhile others can read, but no one can append.
func OpenReadOnly(dir string) (*Reader, error) {
	r, err := newReader(dir)
	if err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	if _, err := r.load(); err != nil {
		r.Close()
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	return r, nil
}

// newReader opens the segment in dir, but does not look at what is in it.
func newReader(dir string) (*Reader, error) {
	path, _, err := findSegment(dir)
	if err != nil {
		return nil, err
	}
	db, err := openReadOnly(path)
	if err != nil {
		return nil, err
	}
	return &Reader{dir: dir, db: db}, nil
}

// Close closes the files. It waits for reads that have begun.
func (r *Reader) Close() error { return r.db.Close() }

// Head returns the committed head: all entries below its size are on disk.
func (r *Reader) Head() Head { return *r.head.Load() }

// ReadHashes returns the hashes of nodes of the tree by their stored index; it
// makes a Reader a [tlog.HashReader], from which tlog makes proofs.
func (r *Reader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	err := r.view(func(entries, _ *bbolt.Bucket) error {
		for i, index := range indexes {
			level, n := tlog.SplitStoredHashIndex(index)
			last := (n+1)<<level - 1
			stored, _, err := split(last, entries.Get(key(last)))
			if err != nil {
				return err
			}
			copy(hashes[i][:], stored[level*tlog.HashSize:])
		}
		return nil
	})
	return hashes, err
}

// Export writes the lines of the entries from index from on and below until to
// w, each with a line feed, and returns how many they are. An until that is
// negative or beyond the head means the head. w may be as slow as it likes.
func (r *Reader) Export(ctx context.Context, w io.Writer, from, until int64) (n int64, err error) {
	if size := r.Head().Size; until < 0 || until > size {
		until = size
	}
	out := bufio.NewWriterSize(w, 1<<16)
	for line, err := range r.lines(ctx, max(from, 0), until) {
		if err != nil {
			return n, fmt.Errorf("export: %w", err)
		}
		out.Write(line) // an error stays until Flush
		if err := out.WriteByte('\n'); err != nil {
			return n, fmt.Errorf("export: %w", err)
		}
		n++
	}
	if err := out.Flush(); err != nil {
		return n, fmt.Errorf("export: %w", err)
	}
	return n, nil
}

// lines yields the lines of the entries in [from, until).
func (r *Reader) lines(ctx context.Context, from, until int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		n := from
		for value, err := range r.values(ctx, from, until) {
			var line []byte
			if err == nil {
				_, line, err = split(n, value)
			}
			if !yield(line, err) || err != nil {
				return
			}
			n++
		}
	}
}

// values yields what is stored under the indexes in [from, until), and an
// error, the last it yields, where something is not there.
func (r *Reader) values(ctx context.Context, from, until int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for from < until {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			page, err := r.page(from, until)
			for _, value := range page {
				if !yield(value, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			from += int64(len(page))
		}
	}
}

// page copies the first values of [from, until) out of one short transaction.
// With an error it returns the values before the one that is missing.
func (r *Reader) page(from, until int64) (page [][]byte, err error) {
	until = min(until, from+pageEntries)
	size := 0
	err = r.view(func(entries, _ *bbolt.Bucket) error {
		c := entries.Cursor()
		k, v := after(c, from)
		for n := from; n < until && size < pageBytes; n++ {
			if !bytes.Equal(k, key(n)) {
				return damaged(n, "is missing")
			}
			page = append(page, bytes.Clone(v))
			size += len(v)
			k, v = c.Next()
		}
		return nil
	})
	return page, err
}

// after moves c behind entry n-1, so that it meets every key from there on,
// whether it is an index or not.
func after(c *bbolt.Cursor, n int64) (k, v []byte) {
	if n == 0 {
		return c.First()
	}
	if k, v := c.Seek(key(n - 1)); !bytes.Equal(k, key(n-1)) {
		return k, v
	}
	return c.Next()
}

// extent returns the stored head, and the number of entries as the last key
// has it.
func (r *Reader) extent() (head Head, count int64, err error) {
	err = r.view(func(entries, meta *bbolt.Bucket) error {
		if got := string(meta.Get(formatKey)); got != format {
			return damaged(-1, "has format %q, not %q", got, format)
		}
		if head, err = decodeHead(meta.Get(headKey)); err != nil {
			return err
		}
		if k, _ := entries.Cursor().Last(); k != nil {
			last, err := index(k)
			count = last + 1
			return err
		}
		return nil
	})
	return head, count, err
}

// load reads the head, and rebuilds the right edge of its tree, which must be
// the one that the head names.
func (r *Reader) load() (*tree, error) {
	head, count, err := r.extent()
	if err != nil {
		return nil, err
	}
	if err := covers(head, count); err != nil {
		return nil, err
	}
	t := &tree{size: head.Size}
	levels, indexes := edgeIndexes(head.Size)
	hashes, err := r.ReadHashes(indexes)
	if err != nil {
		return nil, err
	}
	for i, level := range levels {
		t.edge[level] = hashes[i]
	}
	if t.head() != head {
		return nil, damaged(-1, "does not have the root of its head")
	}
	r.head.Store(&head)
	return t, nil
}

// covers checks that the head is over the entries there are, neither less nor
// more.
func covers(head Head, count int64) error {
	switch {
	case count < head.Size:
		return damaged(count, "is missing")
	case count > head.Size:
		return damaged(head.Size, "is not under the head")
	}
	return nil
}

// view calls read in a read transaction, which read must not outlast.
func (r *Reader) view(read func(entries, meta *bbolt.Bucket) error) error {
	return guard(func() error {
		return r.db.View(func(tx *bbolt.Tx) error {
			entries, meta := tx.Bucket(entriesBucket), tx.Bucket(metaBucket)
			if entries == nil || meta == nil {
				return damaged(-1, "lacks a bucket")
			}
			return read(entries, meta)
		})
	})
}
