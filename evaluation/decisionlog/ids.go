package decisionlog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"math"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// idBlock is the number of consecutive entries that share a span in an [idIndex].
const idBlock = 1024

// An idSpan is the range of the times in the ids of some entries, in milliseconds since 1970. In an
// empty span, oldest is greater than newest.
type idSpan struct{ oldest, newest int64 }

var noIDs = idSpan{math.MaxInt64, math.MinInt64}

func (s *idSpan) add(ms int64) { s.oldest, s.newest = min(s.oldest, ms), max(s.newest, ms) }

func (s idSpan) has(ms int64) bool { return s.oldest <= ms && ms <= s.newest }

// An idIndex tells which blocks of a log may contain an id. Entries are in the order of their
// arrival, which is almost the order of the times in their ids. If a clock was stepped, a block has
// a longer span or several blocks overlap. Committed entries are added at once. Entries from before
// the log was opened are read backwards on demand.
type idIndex struct {
	start int64 // number of entries when the log was opened

	mu    sync.Mutex // also held by the committer, and only briefly
	added []idSpan   // spans of the blocks from that of start on

	back    sync.Mutex // held while a block is read
	earlier []idSpan   // spans of the blocks from that of start back to the first
}

// add adds committed entries, the first of which has the index first.
func (x *idIndex) add(first int64, batch []*pending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, p := range batch {
		b := int((first+int64(i))/idBlock - x.start/idBlock)
		for len(x.added) <= b {
			x.added = append(x.added, noIDs)
		}
		if ms, ok := restTime(p.tail); ok {
			x.added[b].add(ms)
		}
	}
}

// blocks returns the first index of each block that may contain an id of that time, the last block
// first.
func (x *idIndex) blocks(ms int64) (firsts []int64) {
	here := x.start / idBlock
	x.mu.Lock()
	for b := len(x.added) - 1; b >= 0; b-- {
		if x.added[b].has(ms) {
			firsts = append(firsts, (here+int64(b))*idBlock)
		}
	}
	x.mu.Unlock()
	x.back.Lock()
	defer x.back.Unlock()
	for b, span := range x.earlier {
		if span.has(ms) {
			firsts = append(firsts, (here-int64(b))*idBlock)
		}
	}
	return firsts
}

// readBack reads the ids of entries from before the log was opened, back to the first block whose
// ids are all older than ms. It keeps its progress if ctx ends.
func (r *Reader) readBack(ctx context.Context, ms int64) error {
	for {
		if done, err := r.readBlockBack(ctx, ms); done || err != nil {
			return err
		}
	}
}

// readBlockBack reads the next older block, if any.
func (r *Reader) readBlockBack(ctx context.Context, ms int64) (done bool, err error) {
	x := &r.ids
	x.back.Lock()
	defer x.back.Unlock()
	first := (x.start/idBlock - int64(len(x.earlier))) * idBlock
	last := len(x.earlier) - 1
	if first < 0 || last >= 0 && x.earlier[last] != noIDs && x.earlier[last].newest < ms {
		return true, nil
	}
	span := noIDs
	err = r.inPlace(ctx, first, min(x.start, first+idBlock), func(_ int64, _, rest []byte) bool {
		if ms, ok := restTime(rest); ok {
			span.add(ms)
		}
		return true
	})
	if err == nil {
		x.earlier = append(x.earlier, span)
	}
	return false, err
}

// find returns the line of the entry in [from, until) whose text after the index begins with begin.
func (r *Reader) find(ctx context.Context, from, until int64, begin []byte) (line []byte, err error) {
	err = r.inPlace(ctx, from, until, func(_ int64, whole, rest []byte) bool {
		if !bytes.HasPrefix(rest, begin) {
			return true
		}
		line = bytes.Clone(whole)
		return false
	})
	if err == nil && line == nil {
		err = ErrNoEntry
	}
	return line, err
}

// A visit function receives an entry in place: its line, and the line without its beginning. Both
// are invalid after it returns. It returns whether to continue.
type visit func(n int64, line, rest []byte) (more bool)

// inPlace visits the entries in [from, until) without copying them. It skips pruned entries.
func (r *Reader) inPlace(ctx context.Context, from, until int64, visit visit) error {
	for more := true; more && from < until; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, end := segmentAt(*r.segments.Load(), from)
		next := min(until, end, from+idBlock)
		err := p.inPlace(from, next, func(n int64, line, rest []byte) bool { more = visit(n, line, rest); return more })
		if errors.Is(err, ErrPruned) {
			next, err = end, nil
		}
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// inPlace is [Reader.inPlace] for the entries of one segment, in one transaction.
func (p *segmentReader) inPlace(from, until int64, visit visit) error {
	var beginning []byte
	return p.view(func(entries, _ *bbolt.Bucket) error {
		c := entries.Cursor()
		k, v := after(c, from, p.first)
		size := 0
		for n := from; n < until; n++ {
			if !bytes.Equal(k, key(n)) {
				return damaged(n, "is missing")
			}
			if size += len(v); size >= releasedBytes {
				release(entries.Tx())
				size = 0
			}
			_, line, err := split(n, v)
			if err != nil {
				return err
			}
			beginning = appendIndex(beginning[:0], n)
			rest, found := bytes.CutPrefix(line, beginning)
			if !found {
				return damaged(n, "does not have its index")
			}
			if !visit(n, line, rest) {
				return nil
			}
			k, v = c.Next()
		}
		return nil
	})
}

// idBegin is the text between the index and the id of a line.
const idBegin = `"id":"`

// restTime returns the time in the id of a line without its beginning.
func restTime(rest []byte) (ms int64, ok bool) {
	id, found := bytes.CutPrefix(rest, []byte(idBegin))
	if !found || len(id) <= idLength || id[idLength] != '"' {
		return 0, false
	}
	return idTime(id[:idLength])
}

// idLength is the length of a UUID in text form.
const idLength = 36

// idTime returns the time in a UUID of version 7 in lower case, in milliseconds since 1970.
func idTime(id []byte) (ms int64, ok bool) {
	if len(id) != idLength || id[8] != '-' || id[13] != '-' || id[14] != '7' || id[18] != '-' || id[23] != '-' {
		return 0, false
	}
	var time [6]byte
	if _, err := hex.Decode(time[:4], id[:8]); err != nil {
		return 0, false
	}
	if _, err := hex.Decode(time[4:], id[9:13]); err != nil {
		return 0, false
	}
	for _, b := range time {
		ms = ms<<8 | int64(b)
	}
	return ms, true
}

// IDTime returns the time in an id that the service made: a UUID of version 7, with .n for an item
// of a batch.
func IDTime(id string) (time.Time, bool) {
	whole, _, err := splitItem(id)
	if err != nil {
		return time.Time{}, false
	}
	ms, ok := idTime([]byte(whole))
	return time.UnixMilli(ms), ok
}
