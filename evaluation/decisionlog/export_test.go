package decisionlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
)

// WroteNothing tells the tests how an error of a commit is understood.
var WroteNothing = wroteNothing

// BatchedDelay is how long a batched log waits for more entries.
const BatchedDelay = batchedDelay

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

// VerifyExport verifies the lines that [Reader.Export] wrote of a whole log,
// from index 0 to the head, with nothing but these lines and the head. It
// returns an [IntegrityError] for the first line that cannot be the one at its
// place; a line that is well-formed but not the one that was recorded shows in
// the root alone, and the error then has no index.
func VerifyExport(r io.Reader, head Head) (*Report, error) {
	report, err := verifyExport(r, head)
	if err != nil {
		return nil, fmt.Errorf("verify export: %w", err)
	}
	return report, nil
}

func verifyExport(r io.Reader, head Head) (*Report, error) {
	a := newAudit()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, wholeLine)
	lines.Split(splitLines)
	for lines.Scan() {
		if _, _, err := a.line(lines.Bytes()); err != nil {
			return nil, err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, bufio.ErrTooLong):
		return nil, damaged(a.tree.size, "has no end")
	case err != nil:
		return nil, err
	}
	if err := covers(head, a.tree.size); err != nil {
		return nil, err
	}
	return a.report(head)
}

// splitLines is a [bufio.SplitFunc] for lines of which every byte counts and
// every one has its line feed.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}
