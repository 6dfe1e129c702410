package decisionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"
)

// A Report is the result of a verification.
type Report struct {
	Entries   int64     `json:"entries"`
	Pruned    int64     `json:"pruned,omitzero"` // pruned entries, according to later entries
	Root      tlog.Hash `json:"root"`
	Revisions []string  `json:"revisions"`           // revisions that entries name, sorted
	FirstTime time.Time `json:"first_time,omitzero"` // of the first entry
	LastTime  time.Time `json:"last_time,omitzero"`  // of the last entry
	// OtherTenants is the number of entries that a credential for some tenants may not read: those
	// of other tenants, and pruned ones, which look the same.
	OtherTenants int64 `json:"other_tenants,omitzero"`
}

// Verify verifies the log in dir: the pages of its files and everything that [Reader.Verify]
// checks. The log must not be open for appending.
func Verify(ctx context.Context, dir string) (*Report, error) {
	r, err := newReader(dir)
	if err != nil {
		return nil, fmt.Errorf("verify decision log: %w", err)
	}
	defer r.Close()
	return r.Verify(ctx)
}

// Verify verifies the log up to its head. It checks that
//
//   - no entry is missing or at another index,
//   - each entry is one strict JSON object,
//   - the stored hashes and the root match the lines, and
//   - the archive has every revision that an entry names, complete.
//
// It returns an [IntegrityError] for the first entry that fails.
func (r *Reader) Verify(ctx context.Context) (*Report, error) {
	report, err := r.verify(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify decision log: %w", err)
	}
	return report, nil
}

func (r *Reader) verify(ctx context.Context) (*Report, error) {
	r.flush()
	parts := *r.segments.Load()
	e, err := parts[len(parts)-1].meta()
	if err != nil {
		return nil, err
	}
	r.head.CompareAndSwap(nil, &e.head)
	pruned := prunedParts(parts)
	a := newAudit()
	if err := r.verifyPages(ctx, a, e.head.Size); err != nil {
		return nil, err
	}
	if err := covers(e.head, e.count); err != nil {
		return nil, err
	}
	if _, err := r.chain(parts, e); err != nil {
		return nil, err
	}
	if prunedParts(parts) != pruned {
		return nil, fmt.Errorf("%w meanwhile: verify again", ErrPruned)
	}
	report, err := a.report(e.head)
	if err != nil {
		return nil, err
	}
	return report, r.checkAgainstCheckpoint()
}

// verifyPages verifies the entries below size in order.
func (r *Reader) verifyPages(ctx context.Context, a *audit, size int64) error {
	for page, err := range r.pages(ctx, 0, size) {
		if err == nil {
			err = r.verifyPruned(a, page.first)
		}
		for i := 0; i < len(page.values) && a.tree.size == page.first+int64(i); i++ {
			if err := r.verifyEntry(a, page.values[i]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyPruned adds the remaining hashes of pruned segments up to entry n.
func (r *Reader) verifyPruned(a *audit, n int64) error {
	for a.tree.size < n {
		p, until := segmentAt(*r.segments.Load(), a.tree.size)
		indexes := upperHashes(p.first, until)
		hashes, err := p.readHashes(indexes)
		if err != nil {
			return err
		}
		if err := a.tree.addBlocks(hashes); err != nil {
			return err
		}
		a.missing = join(a.missing, span{p.first, until})
	}
	return nil
}

// verifyEntry verifies the value stored under the next index.
func (r *Reader) verifyEntry(a *audit, value []byte) error {
	n := a.tree.size
	stored, line, err := split(n, value)
	if err != nil {
		return err
	}
	named := len(a.revisions)
	hashes, revision, err := a.line(line)
	if err != nil {
		return err
	}
	for level, hash := range hashes {
		if !bytes.Equal(stored[level*tlog.HashSize:][:tlog.HashSize], hash[:]) {
			return damaged(n, "does not have the hash stored for it at level %d", level)
		}
	}
	if len(a.revisions) == named {
		return nil
	}
	return r.verifyArchive(n, revision)
}

// verifyArchive verifies the archive of the revision that entry n names.
func (r *Reader) verifyArchive(n int64, revision string) error {
	_, err := r.readArchive(revision)
	var integrity *IntegrityError
	if errors.As(err, &integrity) || errors.Is(err, fs.ErrNotExist) {
		return damaged(n, "names revision %s, whose archive is incomplete: %v", revision, err)
	}
	return err
}

// An audit reads a log line by line and recomputes its tree.
type audit struct {
	tree        tree
	revisions   map[string]bool
	first, last time.Time
	missing     []span // missing entries
	declared    []span // entries that the last entry of kind "pruned" names
}

// A span is the entries [From, Until).
type span struct {
	From  int64 `json:"from"`
	Until int64 `json:"until"`
}

func (s span) within(other span) bool { return other.From <= s.From && s.Until <= other.Until }

// join appends a span to sorted spans and merges adjacent ones.
func join(spans []span, s span) []span {
	if n := len(spans); n > 0 && spans[n-1].Until == s.From {
		spans[n-1].Until = s.Until
		return spans
	}
	return append(spans, s)
}

func newAudit() *audit { return &audit{revisions: make(map[string]bool)} }

// line adds the next line. It returns the hashes of the nodes that the line completes, and the
// revision that it names.
func (a *audit) line(line []byte) (hashes []tlog.Hash, revision string, err error) {
	n := a.tree.size
	if !bytes.HasPrefix(line, appendIndex(nil, n)) {
		return nil, "", damaged(n, "does not have its index")
	}
	if revision, err = a.read(n, line); err != nil {
		return nil, "", err
	}
	return a.tree.add(line), revision, nil
}

// read parses line n and returns the revision that it names.
func (a *audit) read(n int64, line []byte) (revision string, err error) {
	var entry struct {
		Time     time.Time      `json:"time"`
		Kind     Kind           `json:"kind"`
		Request  jsontext.Value `json:"request"`
		Revision string         `json:"revision"`
	}
	if err := json.Unmarshal(line, &entry); err != nil {
		return "", damaged(n, "is not a strict JSON entry: %v", err)
	}
	if a.first.IsZero() {
		a.first = entry.Time
	}
	a.last = entry.Time
	if entry.Revision != "" {
		a.revisions[entry.Revision] = true
	}
	if entry.Kind != KindPruned {
		return entry.Revision, nil
	}
	var what pruning
	if err := json.Unmarshal(entry.Request, &what); err != nil {
		return "", damaged(n, "does not say what was pruned: %v", err)
	}
	a.declared = what.All
	return entry.Revision, nil
}

// pruned returns the number of missing entries. It fails unless the last entry of kind "pruned"
// names all of them.
func (a *audit) pruned() (n int64, err error) {
	for _, gone := range a.missing {
		if !slices.ContainsFunc(a.declared, gone.within) {
			return 0, damaged(gone.From, "is gone, with all before entry %d, and no entry records that it was pruned", gone.Until)
		}
		n += gone.Until - gone.From
	}
	return n, nil
}

// report ends the audit. The log must have this head.
func (a *audit) report(head Head) (*Report, error) {
	if got := a.tree.head(); got != head {
		return nil, damaged(-1, "has the root %v, and its head %v", got.Root, head.Root)
	}
	pruned, err := a.pruned()
	if err != nil {
		return nil, err
	}
	return &Report{
		Entries:   head.Size,
		Pruned:    pruned,
		Root:      head.Root,
		Revisions: slices.Sorted(maps.Keys(a.revisions)),
		FirstTime: a.first,
		LastTime:  a.last,
	}, nil
}
