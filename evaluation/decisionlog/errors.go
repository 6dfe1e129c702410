package decisionlog

import (
	"errors"
	"fmt"
)

var (
	// ErrLocked means that the log is open elsewhere, here or in another process.
	ErrLocked = errors.New("the decision log is in use")

	// ErrUnavailable means that the log cannot take the entry now: the disk or
	// the queue is full, the caller's context ended, or the log is closed.
	ErrUnavailable = errors.New("the decision log cannot take the entry")

	// ErrFailed means that the log cannot tell what is on disk. It takes no more
	// entries and the process must end.
	ErrFailed = errors.New("the decision log has failed")

	// ErrRolledBack means that the log lacks what its last checkpoint has, or has
	// lost the checkpoint. It comes with an [IntegrityError].
	ErrRolledBack = errors.New("the decision log was rolled back")

	// ErrPruned means that entries are gone because they were kept long enough.
	ErrPruned = errors.New("these entries were pruned")

	// ErrNoEntry means that the log has no entry of that id.
	ErrNoEntry = errors.New("the log has no such entry")
)

// An IntegrityError says that a log or an archive is not what was written.
type IntegrityError struct {
	Index  int64  // the first entry that is not as it was, or -1 if the fault is not in one entry
	Reason string // a phrase that follows "entry 7" or "the log"
}

func (e *IntegrityError) Error() string {
	if e.Index < 0 {
		return "the log " + e.Reason
	}
	return fmt.Sprintf("entry %d %s", e.Index, e.Reason)
}

// damaged returns the complaint about the entry at index, or about the whole
// log if index is -1.
func damaged(index int64, format string, args ...any) error {
	return &IntegrityError{Index: index, Reason: fmt.Sprintf(format, args...)}
}

// A rollback is an error that also is [ErrRolledBack].
type rollback struct{ error }

func (r rollback) Unwrap() []error { return []error{r.error, ErrRolledBack} }
