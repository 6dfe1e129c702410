package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// A Record is an entry where it stands in the log.
type Record struct {
	Index int64 `json:"index"`
	Entry
}

// Select yields the lines of the entries that f selects, in their order.
// Pruned entries are left out.
func (r *Reader) Select(ctx context.Context, f Filter) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		from, until := f.bounds(r.Head().Size)
		for line, err := range r.lines(ctx, from, until) {
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

// window is how many entries Last looks at once.
const window = 1000

// Last returns the lines of the last n entries that f selects, in their order.
// It reads the log from its end, and no more of it than that takes.
func (r *Reader) Last(ctx context.Context, f Filter, n int) ([][]byte, error) {
	var last [][]byte
	from, until := f.bounds(r.Head().Size)
	for until > from && len(last) < n {
		f.From, f.Until = max(from, until-window), until
		var found [][]byte
		for line, err := range r.Select(ctx, f) {
			if err != nil {
				return nil, err
			}
			found = append(found, line)
		}
		last, until = append(found, last...), f.From
	}
	return last[max(0, len(last)-n):], nil
}

// bounds returns the indexes between which f selects from a log of that size.
func (f Filter) bounds(size int64) (from, until int64) {
	until = size
	if f.Until > 0 {
		until = min(size, f.Until)
	}
	return max(0, f.From), until
}

// skew is how far the order of entries may differ from that of their times.
const skew = 20 * time.Second

// Lookup returns the entry with a Decision-ID. The id of an item of a batch,
// <Decision-ID>.<n>, returns the batch and the item n; else item is -1. It
// returns [ErrNoEntry] if there is none, or none any more.
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

// splitItem takes apart the id of an item; another has the item -1.
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

// lookup looks first where an entry of the id's time should be, and then
// everywhere: a clock may have been wrong.
func (r *Reader) lookup(ctx context.Context, id string) (*Record, error) {
	if at, ok := timeOf(id); ok {
		record, err := r.first(ctx, Filter{ID: id, From: r.search(at.Add(-skew)), Until: r.search(at.Add(skew))})
		if !errors.Is(err, ErrNoEntry) {
			return record, err
		}
	}
	return r.first(ctx, Filter{ID: id})
}

// timeOf returns the time in an id, if it has one.
func timeOf(id string) (time.Time, bool) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}, false
	}
	return time.Unix(u.Time().UnixTime()), true
}

// search returns the index of the first entry that is not before t, if the
// entries are in the order of their times.
func (r *Reader) search(t time.Time) int64 {
	size := r.Head().Size
	return int64(sort.Search(int(size), func(n int) bool {
		for line, err := range r.lines(context.Background(), int64(n), size) {
			var s summary
			return err != nil || json.Unmarshal(line, &s) != nil || !s.Time.Before(t)
		}
		return true
	}))
}

// first returns the first entry that f selects.
func (r *Reader) first(ctx context.Context, f Filter) (*Record, error) {
	for line, err := range r.Select(ctx, f) {
		if err != nil {
			return nil, err
		}
		record := new(Record)
		return record, json.Unmarshal(line, record)
	}
	return nil, ErrNoEntry
}
