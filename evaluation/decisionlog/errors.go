package decisionlog

import (
	"errors"
	"fmt"
)

var (
	// ErrLocked means that this or another process has the log open.
	ErrLocked = errors.New("the decision log is in use")

	// ErrUnavailable means that the log cannot take the entry now: the disk or the queue is full,
	// the caller's context ended, or the log is closed.
	ErrUnavailable = errors.New("the decision log cannot take the entry")

	// ErrFailed means that the content of the disk is unknown. The log accepts no more entries and
	// the process must end.
	ErrFailed = errors.New("the decision log has failed")

	// ErrRolledBack means that the log has lost its last checkpoint or entries under it. The error
	// also is an [IntegrityError].
	ErrRolledBack = errors.New("the decision log was rolled back")

	// ErrPruned means that the entries were removed because their retention ended.
	ErrPruned = errors.New("these entries were pruned")

	// ErrNoEntry means that no entry has this id.
	ErrNoEntry = errors.New("the log has no such entry")
)

// An IntegrityError reports that a log or an archive differs from what was written.
type IntegrityError struct {
	Index  int64  // first damaged entry, or -1 if the fault is not in one entry
	Reason string // a phrase that follows "entry 7" or "the log"
}

func (e *IntegrityError) Error() string {
	if e.Index < 0 {
		return "the log " + e.Reason
	}
	return fmt.Sprintf("entry %d %s", e.Index, e.Reason)
}

// damaged returns an [IntegrityError] about the entry at index, or about the whole log if index is
// -1.
func damaged(index int64, format string, args ...any) error {
	return &IntegrityError{Index: index, Reason: fmt.Sprintf(format, args...)}
}

// A rollback is an error that also is [ErrRolledBack].
type rollback struct{ error }

func (r rollback) Unwrap() []error { return []error{r.error, ErrRolledBack} }
