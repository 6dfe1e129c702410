package decisionlog

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// A Proof proves, with only the public keys of the log, that an entry is in the log, or that the
// log still has all entries of an earlier checkpoint. Its hashes are those of RFC 6962 (sections
// 2.1.1 and 2.1.2), in that order.
type Proof struct {
	Checkpoint string      `json:"checkpoint"`       // signed note of the head
	Index      int64       `json:"index,omitzero"`   // index of the entry
	Line       string      `json:"line,omitzero"`    // the entry; only in an inclusion proof
	Earlier    string      `json:"earlier,omitzero"` // the earlier checkpoint; only in a consistency proof
	Hashes     []tlog.Hash `json:"hashes"`
}

// ProveEntry proves that entry n is in the log.
func (r *Reader) ProveEntry(ctx context.Context, n int64) (*Proof, error) {
	signed, err := r.Sign()
	if err != nil {
		return nil, err
	}
	p := &Proof{Checkpoint: signed.Note, Index: n}
	if p.Hashes, err = tlog.ProveRecord(signed.Size, n, r); err != nil {
		return nil, fmt.Errorf("prove entry %d: %w", n, err)
	}
	for line, err := range r.lines(ctx, n, n+1) {
		if err != nil {
			return nil, fmt.Errorf("prove entry %d: %w", n, err)
		}
		p.Line = string(line)
	}
	return p, nil
}

// ProveSince proves that the log has all entries of an earlier checkpoint that it signed. For
// pruned entries that is possible at multiples of 256 and at the end of segments.
func (r *Reader) ProveSince(earlier []byte) (*Proof, error) {
	keys, err := r.Keys()
	if err != nil {
		return nil, err
	}
	from, err := ParseCheckpoint(earlier, keys)
	if err != nil {
		return nil, err
	}
	signed, err := r.Sign()
	if err != nil {
		return nil, err
	}
	if err := r.Continues(from.Head); err != nil {
		return nil, err
	}
	p := &Proof{Checkpoint: signed.Note, Earlier: from.Note}
	if from.Size == 0 {
		return p, nil
	}
	if p.Hashes, err = tlog.ProveTree(signed.Size, from.Size, r); err != nil {
		return nil, fmt.Errorf("prove that %d entries continue %d: %w", signed.Size, from.Size, err)
	}
	return p, nil
}

// Sign signs the current head for others. It does not become the published checkpoint.
func (r *Reader) Sign() (*Checkpoint, error) {
	n, err := openNotary(r.dir)
	if err != nil {
		return nil, err
	}
	return n.checkpoint(r.Head())
}

// Verify verifies a proof and returns the checkpoint of its head.
func (p *Proof) Verify(keys []string) (*Checkpoint, error) {
	now, err := ParseCheckpoint([]byte(p.Checkpoint), keys)
	if err != nil {
		return nil, fmt.Errorf("verify proof: %w", err)
	}
	if p.Earlier == "" {
		err = p.verifyEntry(now)
	} else {
		err = p.verifyEarlier(now, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("verify proof: %w", err)
	}
	return now, nil
}

func (p *Proof) verifyEntry(now *Checkpoint) error {
	if n, ok := lineIndex([]byte(p.Line)); !ok || n != p.Index {
		return damaged(p.Index, "does not have its index")
	}
	if err := tlog.CheckRecord(p.Hashes, now.Size, now.Root, p.Index, tlog.RecordHash([]byte(p.Line))); err != nil {
		return damaged(p.Index, "is not in the log: %v", err)
	}
	return nil
}

func (p *Proof) verifyEarlier(now *Checkpoint, keys []string) error {
	earlier, err := ParseCheckpoint([]byte(p.Earlier), keys)
	switch {
	case err != nil:
		return err
	case earlier.Origin != now.Origin:
		return damaged(-1, "is not the one of the earlier checkpoint: that is %s", earlier.Origin)
	case earlier.Size == 0:
		return nil
	}
	if err := tlog.CheckTree(p.Hashes, now.Size, now.Root, earlier.Size, earlier.Root); err != nil {
		return damaged(-1, "does not have all that it had at %d entries: %v", earlier.Size, err)
	}
	return nil
}
