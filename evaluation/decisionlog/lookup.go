package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Record is an entry with its index.
type Record struct {
	Index int64 `json:"index"`
	Entry
}

// Select yields the lines of the entries that f selects, in order of index. It skips pruned
// entries. A line is valid until the next iteration; callers clone lines they keep.
func (r *Reader) Select(ctx context.Context, f Filter) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for line, err := range r.candidates(ctx, f) {
			selected := false
			if err == nil {
				selected, err = f.Match(line)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if selected && !yield(line, nil) {
				return
			}
		}
	}
}

// candidates yields the lines at the indexes of f.
func (r *Reader) candidates(ctx context.Context, f Filter) iter.Seq2[[]byte, error] {
	from, until := f.bounds(r.Head().Size)
	if f.Indexes == nil {
		return r.lines(ctx, from, until)
	}
	return func(yield func([]byte, error) bool) {
		for _, n := range f.Indexes {
			for line, err := range r.lines(ctx, max(n, from), min(n+1, until)) {
				if !yield(line, err) {
					return
				}
			}
		}
	}
}

// window is the number of consecutive entries that Last reads at once.
const window = 1000

// Last describes the last entries that a filter selects.
type Last struct {
	Filter       // selects these entries
	Entries int  // their number
	Of      int  // number of entries that the original filter selects
	Counted bool // Of is exact; otherwise there may be more

	// These are all selected entries with indexes from LookedFrom up to and excluding LookedUntil. For a
	// filter of some tenants the last one is before LookedUntil, because further entries, which are of
	// others, must not be counted.
	LookedFrom, LookedUntil int64
	// More reports that the original filter may select entries before LookedFrom.
	More bool

	newest int64 // index of the last entry; -1 for none
}

// Last finds the last n entries that f selects. It reads the log from its end and copies nothing.
// It then counts further selected entries, and stops after reading most entries in all.
func (r *Reader) Last(ctx context.Context, f Filter, n, most int) (Last, error) {
	return r.latest(ctx, f, n, func(found int, looked int64) int64 {
		if found == n && looked+window > int64(most) {
			return 0
		}
		return window
	})
}

// A Look limits how much of the log a query reads, whatever it finds. At least a thousand entries are
// read if there are as many.
type Look struct {
	Entries int64
	Time    time.Duration
}

// Latest finds the last n entries that f selects among the last entries. The answer says how far it
// looked. A next query continues with Until set to LookedFrom.
func (r *Reader) Latest(ctx context.Context, f Filter, n int, look Look) (Last, error) {
	start := time.Now()
	return r.latest(ctx, f, n, func(found int, looked int64) int64 {
		if found >= n || looked > 0 && time.Since(start) > look.Time {
			return 0
		}
		return min(window, max(look.Entries, window)-looked)
	})
}

// latest reads the log from its end, as many entries at a time as next returns.
func (r *Reader) latest(ctx context.Context, f Filter, n int, next func(found int, looked int64) int64) (Last, error) {
	from, until := f.bounds(r.Head().Size)
	last := Last{Filter: f, LookedFrom: until, LookedUntil: until, newest: -1}
	last.From, last.Until = until, until
	for n > 0 && until > from {
		step := next(last.Entries, last.LookedUntil-until)
		if step == 0 {
			break
		}
		begin := max(from, until-step)
		found, err := r.matching(ctx, f, begin, until)
		if err != nil {
			return last, err
		}
		last.add(found, n, begin)
		until = begin
	}
	last.Counted = until <= from
	last.More = last.LookedFrom > from
	if f.Tenants != nil {
		last.LookedUntil = max(last.LookedFrom, last.newest+1)
	}
	return last.orNone(), nil
}

// add adds the indexes of selected entries, which begin is not after.
func (l *Last) add(found []int64, n int, begin int64) {
	if more := min(len(found), n-l.Entries); more > 0 {
		l.From = found[len(found)-more]
		l.newest = max(l.newest, found[len(found)-1])
		l.Entries += more
	}
	if l.Of += len(found); l.Of == l.Entries {
		l.LookedFrom = begin
	} else if l.LookedFrom > l.From {
		l.LookedFrom = l.From
	}
}

// Newest returns the line of the last entry that f selects, or nil.
func (r *Reader) Newest(ctx context.Context, f Filter) ([]byte, error) {
	last, err := r.Last(ctx, f, 1, 0)
	if err != nil {
		return nil, err
	}
	for line, err := range r.Select(ctx, last.Filter) {
		return bytes.Clone(line), err
	}
	return nil, nil
}

// Total returns Of as text, with a plus sign if there may be more.
func (l Last) Total() string {
	if l.Counted {
		return strconv.Itoa(l.Of)
	}
	return strconv.Itoa(l.Of) + "+"
}

// Looked returns the range of indexes as LookedFrom-LookedUntil.
func (l Last) Looked() string { return fmt.Sprintf("%d-%d", l.LookedFrom, l.LookedUntil) }

// orNone makes a filter without entries select none. Until 0 would mean the head.
func (l Last) orNone() Last {
	if l.Entries == 0 {
		l.From, l.Until = maxIndex, maxIndex
	}
	return l
}

// matching returns the indexes of the entries in [from, until) that f selects.
func (r *Reader) matching(ctx context.Context, f Filter, from, until int64) (found []int64, err error) {
	var failed error
	err = r.inPlace(ctx, from, until, func(n int64, line, _ []byte) bool {
		selected, err := f.Match(line)
		if selected {
			found = append(found, n)
		}
		failed = err
		return err == nil
	})
	return found, errors.Join(err, failed)
}

// bounds returns the index range that f selects from a log of that size.
func (f Filter) bounds(size int64) (from, until int64) {
	until = size
	if f.Until > 0 {
		until = min(size, f.Until)
	}
	return max(0, f.From), until
}

// Lookup returns the entry with a Decision-ID. For the id of a batch item, <Decision-ID>.<n>, it
// returns the batch and n. Otherwise item is -1. It returns [ErrNoEntry] if there is no such entry
// or it was pruned. Lookup first flushes accepted entries, so it also finds those of a batched log.
//
// Lookup examines few entries and copies only the result. The first call after the log was opened
// also reads the entries of the hour before the id's time. For an id that the service did not make
// (see [IDTime]), it examines all entries.
func (r *Reader) Lookup(ctx context.Context, id string) (record *Record, item int, err error) {
	whole, item, err := splitItem(id)
	if err == nil {
		record, err = r.lookup(ctx, whole)
	}
	if err == nil && item >= len(record.Evaluations) {
		err = ErrNoEntry
	}
	if err != nil {
		return nil, -1, fmt.Errorf("look up %s: %w", id, err)
	}
	return record, item, nil
}

// Line returns the line of entry n, byte for byte. It returns [ErrNoEntry] for an index beyond the head, and
// [ErrPruned] for an entry that was removed.
func (r *Reader) Line(ctx context.Context, n int64) ([]byte, error) {
	if n < 0 || n >= r.Head().Size {
		return nil, fmt.Errorf("entry %d: %w", n, ErrNoEntry)
	}
	for line, err := range r.lines(ctx, n, n+1) {
		return bytes.Clone(line), err
	}
	return nil, fmt.Errorf("entry %d: %w", n, ErrPruned)
}

// Find returns the entry that an id names: a Decision-ID as in [Reader.Lookup], or an index.
func (r *Reader) Find(ctx context.Context, id string) (*Record, error) {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return readRecord(r.Line(ctx, n))
	}
	record, _, err := r.Lookup(ctx, id)
	return record, err
}

// splitItem splits the id of an item. For any other id, item is -1.
func splitItem(id string) (whole string, item int, err error) {
	whole, number, found := strings.Cut(id, ".")
	if whole == "" {
		return "", -1, ErrNoEntry
	}
	if !found {
		return id, -1, nil
	}
	item, err = strconv.Atoi(number)
	if err != nil || item < 0 || strconv.Itoa(item) != number {
		return "", -1, ErrNoEntry
	}
	return whole, item, nil
}

// clockError is the largest error of a clock, before the log was opened, at which an entry can
// still be found by its id.
const clockError = time.Hour

// lookup searches the blocks that fit the id's time. An id without a time may be in any block.
func (r *Reader) lookup(ctx context.Context, id string) (*Record, error) {
	if r.flushed != nil {
		if err := r.flushed(ctx); err != nil {
			return nil, err
		}
	}
	size := r.committed().Size
	quoted, err := jsontext.AppendQuote([]byte(`"id":`), id)
	if err != nil {
		return nil, ErrNoEntry
	}
	ms, ok := idTime([]byte(id))
	if !ok {
		return readRecord(r.find(ctx, 0, size, append(quoted, ',')))
	}
	if err := r.readBack(ctx, ms-clockError.Milliseconds()); err != nil {
		return nil, err
	}
	for _, first := range r.ids.blocks(ms) {
		line, err := r.find(ctx, first, min(size, first+idBlock), append(quoted, ','))
		if !errors.Is(err, ErrNoEntry) {
			return readRecord(line, err)
		}
	}
	return nil, ErrNoEntry
}

func readRecord(line []byte, err error) (*Record, error) {
	if err != nil {
		return nil, err
	}
	record := new(Record)
	return record, json.Unmarshal(line, record)
}
