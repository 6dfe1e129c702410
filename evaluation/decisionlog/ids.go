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

// idBlock is how many entries in a row have one span in an [idIndex].
const idBlock = 1024

// A span of ids are the times that the ids of some entries have in them, in
// milliseconds since 1970. One of no ids has its oldest behind its newest.
type idSpan struct{ oldest, newest int64 }

var noIDs = idSpan{math.MaxInt64, math.MinInt64}

func (s *idSpan) add(ms int64) { s.oldest, s.newest = min(s.oldest, ms), max(s.newest, ms) }

func (s idSpan) has(ms int64) bool { return s.oldest <= ms && ms <= s.newest }

// An idIndex says in which blocks of a log an id can be. Entries are in the
// order in which they came to the log, which is nearly that of the times in
// their ids; where a clock was stepped, a block has a longer span, or several
// blocks have the same. Entries that are committed are added at once. Those
// that were there before are read back from the first of them, as far as
// somebody wants to know.
type idIndex struct {
	start int64 // how many entries there were when the log was opened

	mu    sync.Mutex // held by the committer, too, and never for long
	added []idSpan   // of the blocks from that of start on

	back    sync.Mutex // held while a block is read
	earlier []idSpan   // of the blocks from that of start back to the first
}

// add notes entries that are committed; the first of them has the index first.
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

// blocks returns the first entries of the blocks that can have an id of that
// time, the last block first.
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

// readBack notes the ids of entries from before the log was opened, back to
// the first block that is older than ms as a whole. What it has read it keeps,
// also if ctx ends.
func (r *Reader) readBack(ctx context.Context, ms int64) error {
	for {
		if done, err := r.readBlockBack(ctx, ms); done || err != nil {
			return err
		}
	}
}

// readBlockBack reads one block back, unless there is none to be read.
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

// find returns the line of the entry among [from, until) that begins, behind
// its index, with that text.
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

// A visit is told of an entry in place: its line, and that without its
// beginning, both gone when it returns. It returns whether there is to be
// another.
type visit func(n int64, line, rest []byte) (more bool)

// inPlace visits the entries in [from, until), of which pruned ones are left
// out. It copies nothing.
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

// inPlace is [Reader.inPlace] for entries of the part, in one transaction.
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

// idBegin is what a line has behind its index, before the id.
const idBegin = `"id":"`

// restTime returns the time in the id of a line without its beginning.
func restTime(rest []byte) (ms int64, ok bool) {
	id, found := bytes.CutPrefix(rest, []byte(idBegin))
	if !found || len(id) <= idLength || id[idLength] != '"' {
		return 0, false
	}
	return idTime(id[:idLength])
}

// idLength is the length of a UUID as text.
const idLength = 36

// idTime returns the time in a UUID of version 7, which must be written as we
// write it, in milliseconds since 1970.
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

// IDTime returns the time at which an id was made, if it is one as the service
// makes them: a UUID of version 7, of an item of a batch with .n behind it.
func IDTime(id string) (time.Time, bool) {
	whole, _, err := splitItem(id)
	if err != nil {
		return time.Time{}, false
	}
	ms, ok := idTime([]byte(whole))
	return time.UnixMilli(ms), ok
}
