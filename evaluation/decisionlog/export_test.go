package decisionlog

import "testing"

// WroteNothing tells the tests how an error of a commit is understood.
var WroteNothing = wroteNothing

// OpenTransactions returns how many read transactions are open.
func (r *Reader) OpenTransactions() int { return r.last().db.Stats().OpenTxN }

// Transactions returns how many write transactions the file has seen.
func (r *Reader) Transactions(t testing.TB) int {
	tx, err := r.last().db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	return tx.ID()
}

// Hold keeps the committer from committing until release is called.
func (l *Log) Hold(t testing.TB) (release func()) {
	tx, err := l.last().db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// Resize changes how large the segment may become.
func (l *Log) Resize(t testing.TB, size int) {
	defer l.Hold(t)()
	l.last().db.MaxSize = size
}

// Accepted returns how many entries are accepted and not yet on disk.
func (l *Log) Accepted() int { return len(l.committer.slots) }
