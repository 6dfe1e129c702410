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

// A Retention says how long entries are kept. Pruning removes complete sealed segments, the oldest
// first, and keeps their hashes: proofs about other entries remain valid. The zero Retention
// removes nothing.
type Retention struct {
	Age   time.Duration // minimum age since a segment was sealed; 0 means any age
	Bytes int64         // maximum size of all segments but those of the last five minutes; 0 means any size
	Hold  []Period      // segments with entries of these times are kept
}

// A Period is the time from From up to Until. A zero end is open.
type Period struct {
	From, Until time.Time
}

// UnmarshalText parses a period "FROM/UNTIL": two dates or RFC 3339 times. Either may be empty.
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

// MarshalText returns the period in the form that UnmarshalText parses.
func (p Period) MarshalText() ([]byte, error) {
	return []byte(formatTime(p.From) + "/" + formatTime(p.Until)), nil
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// parseTime parses a time, or a date as its beginning in UTC. "" is the zero time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	return time.Parse(time.RFC3339, text)
}

// overlaps reports whether the period contains a time in [from, until].
func (p Period) overlaps(from, until time.Time) bool {
	return (p.Until.IsZero() || from.Before(p.Until)) && (p.From.IsZero() || !until.Before(p.From))
}

// Reasons for the removal of a segment.
const (
	tooOld  = "age"
	tooMuch = "size"
)

// leastAge is the age of a segment below which nothing removes it: a start reads the proofs of
// capabilities from the last four minutes.
const leastAge = 5 * time.Minute

// reason returns why a segment, written to between created and sealed, is removed from a log of
// total bytes. It returns "" if the segment is kept.
func (r Retention) reason(created, sealed, now time.Time, total int64) string {
	held := slices.ContainsFunc(r.Hold, func(p Period) bool { return p.overlaps(created, sealed) })
	switch {
	case held, now.Sub(sealed) < leastAge:
		return ""
	case r.Age > 0 && now.Sub(sealed) >= r.Age:
		return tooOld
	case r.Bytes > 0 && total > r.Bytes:
		return tooMuch
	}
	return ""
}

// A pruning is the request of an entry about removed entries. It repeats all earlier removals,
// because the entries about those are removed one day.
type pruning struct {
	span
	Reason string `json:"reason"`
	All    []span `json:"all"` // these and all entries removed before
}

// Prune removes the segments that r does not keep and returns the number of removed entries. Before
// it removes a segment, its hashes are on disk and a checkpoint covers the entry about the removal.
// Concurrent calls are serialized.
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
		if err := l.prune(ctx, p, parts[i+1], pruning{gone, reason, prunedWith(parts, i)}); err != nil {
			return entries, fmt.Errorf("prune entries %d to %d: %w", gone.From, gone.Until-1, err)
		}
		total -= size
		entries += gone.Until - gone.From
	}
	return entries, nil
}

// prunedWith returns all removed entries after the removal of segment i.
func prunedWith(parts []*segmentReader, i int) []span {
	var all []span
	for j, p := range parts[:len(parts)-1] {
		if j == i || p.pruned() {
			all = join(all, span{p.first, parts[j+1].first})
		}
	}
	return all
}

// sealedBy returns a time at which the segment before these was sealed already. The time of
// creation of a pruned segment is unknown.
func sealedBy(parts []*segmentReader) time.Time {
	for _, p := range parts {
		if !p.pruned() {
			return p.created
		}
	}
	return time.Time{} // not reached: the last segment is never pruned
}

// totalBytes returns the size of all segments in bytes.
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

// remainder returns the hashes that remain of a segment. They must lead to the root that the next
// segment continues: nobody can recompute them after the removal.
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
	if errors.Is(err, ErrPruned) { // its earlier pruning verified the hashes
		err = nil
	}
	return hashes, err
}

// discard replaces a segment by the file with its hashes.
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
