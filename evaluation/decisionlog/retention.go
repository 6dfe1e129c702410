package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/policy-service/policy-service/evaluation/durable"
)

// A Retention says how long entries are kept. What is removed are whole sealed
// segments, the oldest first, all but their hashes: proofs about the other
// entries still verify. The zero Retention removes nothing.
type Retention struct {
	Age   time.Duration // of segments since they were sealed; 0 for any age
	Bytes int64         // of all segments; 0 for any size
	Hold  []Period      // a segment with entries of these times stays
}

// A Period is a time from From up to Until, either of which may be open.
type Period struct {
	From, Until time.Time
}

// UnmarshalText reads a period as "FROM/UNTIL", two dates or times as in RFC
// 3339, either of which may be left out.
func (p *Period) UnmarshalText(text []byte) (err error) {
	from, until, found := strings.Cut(string(text), "/")
	if p.From, err = parseTime(from); err == nil {
		p.Until, err = parseTime(until)
	}
	if !found || err != nil {
		return fmt.Errorf("must be FROM/UNTIL, as in 2026-01-01/2026-03-31T12:00:00Z or 2026-01-01/, not %q", text)
	}
	return nil
}

// MarshalText returns the period as UnmarshalText reads it.
func (p Period) MarshalText() ([]byte, error) {
	return []byte(formatTime(p.From) + "/" + formatTime(p.Until)), nil
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// parseTime reads a time or the beginning of a day in UTC; "" is no time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	return time.Parse(time.RFC3339, text)
}

// overlaps reports whether some time in [from, until] is in the period.
func (p Period) overlaps(from, until time.Time) bool {
	return (p.Until.IsZero() || from.Before(p.Until)) && (p.From.IsZero() || !until.Before(p.From))
}

// Why a segment is removed.
const (
	tooOld  = "age"
	tooMuch = "size"
)

// reason says why a segment that was written to from created until sealed is
// removed from a log of so many bytes, or returns "".
func (r Retention) reason(created, sealed, now time.Time, total int64) string {
	held := slices.ContainsFunc(r.Hold, func(p Period) bool { return p.overlaps(created, sealed) })
	switch {
	case held:
		return ""
	case r.Age > 0 && now.Sub(sealed) >= r.Age:
		return tooOld
	case r.Bytes > 0 && total > r.Bytes:
		return tooMuch
	}
	return ""
}

// A pruning is the request of an entry that says what is removed. It repeats
// what was removed before it, for the entries that said so are removed one
// day, too.
type pruning struct {
	span
	Reason string `json:"reason"`
	All    []span `json:"all"` // this and all that was removed before
}

// Prune removes what need not be kept any longer, and returns how many entries
// that were. Before a segment goes, its hashes are on disk, and an entry that
// says so is under a checkpoint. One call goes on at a time.
func (l *Log) Prune(ctx context.Context, r Retention) (entries int64, err error) {
	parts := *l.segments.Load()
	total, err := totalBytes(parts)
	if err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	now := l.committer.config.Now()
	for i, p := range parts[:len(parts)-1] {
		reason := r.reason(p.created, sealedBy(parts[i+1:]), now, total)
		if p.pruned() || reason == "" {
			continue
		}
		size, err := p.size()
		if err != nil {
			return entries, fmt.Errorf("prune: %w", err)
		}
		gone := span{p.first, parts[i+1].first}
		if err := l.prune(ctx, p, parts[i+1], pruning{gone, reason, goneWith(parts, i)}); err != nil {
			return entries, fmt.Errorf("prune entries %d to %d: %w", gone.From, gone.Until-1, err)
		}
		total -= size
		entries += gone.Until - gone.From
	}
	return entries, nil
}

// goneWith lists what is removed once part i is.
func goneWith(parts []*segmentReader, i int) []span {
	var all []span
	for j, p := range parts[:len(parts)-1] {
		if j == i || p.pruned() {
			all = join(all, span{p.first, parts[j+1].first})
		}
	}
	return all
}

// sealedBy returns a time at which the segment before these was sealed. When
// a pruned one was begun is not known any more.
func sealedBy(parts []*segmentReader) time.Time {
	for _, p := range parts {
		if !p.pruned() {
			return p.created
		}
	}
	return time.Time{} // the last is never pruned
}

// totalBytes is how much room the entries take.
func totalBytes(parts []*segmentReader) (total int64, err error) {
	for _, p := range parts {
		if p.pruned() {
			continue
		}
		size, err := p.size()
		if err != nil {
			return 0, err
		}
		total += size
	}
	return total, nil
}

func (l *Log) prune(ctx context.Context, p, next *segmentReader, what pruning) error {
	hashes, err := l.remainder(p, next, what.span)
	if err != nil {
		return err
	}
	left := segmentFile(l.dir, what.From, prunedExt)
	if err := durable.ReplaceFile(left, joinHashes(hashes)); err != nil {
		return err
	}
	if err := l.recordInternal(ctx, KindPruned, what); err != nil {
		return err
	}
	if _, err := l.Checkpoint(); err != nil {
		return err
	}
	return p.discard(left)
}

// remainder returns the hashes that a part leaves behind, which must lead to
// the root that the next part continues: once the entries are gone, no one can
// compute them again.
func (l *Log) remainder(p, next *segmentReader, what span) ([]tlog.Hash, error) {
	hashes, err := p.readHashes(upperHashes(what.From, what.Until))
	if err != nil {
		return nil, err
	}
	t, err := l.edge(what.From)
	if err != nil {
		return nil, err
	}
	if err := t.addBlocks(hashes); err != nil {
		return nil, err
	}
	e, err := next.meta()
	if err == nil && e.base != t.head() {
		err = damaged(what.From, "is in a segment whose hashes do not lead to the next")
	}
	if errors.Is(err, ErrPruned) { // and was held to this one then
		err = nil
	}
	return hashes, err
}

// discard leaves of a segment only the file with its hashes.
func (p *segmentReader) discard(left string) error {
	seen, err := os.Stat(left)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := p.path
	p.path, p.seen = left, seen
	err = p.closeLocked()
	return errors.Join(err, os.Remove(gone), durable.SyncDir(filepath.Dir(gone)))
}
