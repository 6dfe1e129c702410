package decisionlog

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// A Proof proves, with the public key of the log alone, that an entry is in
// the log, or that the log has all it had at an earlier checkpoint. Its hashes
// are those of RFC 6962, in that order.
type Proof struct {
	Checkpoint string      `json:"checkpoint"`       // the signed note of the head
	Index      int64       `json:"index,omitzero"`   // of the entry
	Line       string      `json:"line,omitzero"`    // of the entry; an inclusion proof has one
	Earlier    string      `json:"earlier,omitzero"` // the earlier checkpoint; a consistency proof has one
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

// ProveSince proves that the log has all it had at an earlier checkpoint,
// which it has signed. Of entries that were pruned that can be proved at
// multiples of 256 and at the end of segments.
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

// Sign signs the head as it is now, for others: the log is not held to it.
func (r *Reader) Sign() (*Checkpoint, error) {
	n, err := openNotary(r.dir)
	if err != nil {
		return nil, err
	}
	return n.checkpoint(r.Head())
}

// Verify verifies a proof, and returns the checkpoint it leads to.
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
