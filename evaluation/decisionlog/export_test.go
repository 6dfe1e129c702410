package decisionlog

import (
	"bytes"
	"os"
	"testing"
)

// WroteNothing tells the tests how an error of a commit is understood.
var WroteNothing = wroteNothing

// OpenTransactions returns how many read transactions are open.
func (r *Reader) OpenTransactions() int { return r.last().db.Stats().OpenTxN }

// Records returns how many records the journal in dir has.
func Records(t testing.TB, dir string) (n int) {
	for _, path := range journalPaths(dir) {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(file, []byte(recordMagic))
	}
	return n
}

// HoldRecords keeps the committer from more than one record in the journal
// until release is called.
func (l *Log) HoldRecords() (release func()) {
	last := l.last()
	last.mu.Lock()
	return last.mu.Unlock
}

// Hold keeps the committer from committing to the segment until release is
// called.
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

// Encode makes the line of an entry.
func (l *Log) Encode(e *Entry) error {
	_, err := l.encode(e)
	return err
}

// AppendIndex returns the beginning of line n.
func AppendIndex(n int64) []byte { return appendIndex(nil, n) }
