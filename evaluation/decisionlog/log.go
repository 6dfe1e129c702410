package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
)

// A Durability says when [Log.Append] returns.
type Durability int

const (
	// Strict: when the entry is on disk.
	Strict Durability = iota

	// Batched: when the entry is queued. It is on disk within 100 milliseconds
	// if the disk keeps up, and never are more entries behind than the queue
	// takes. They are lost if the process dies. They are not if the disk is
	// full: the log tries again until it is closed.
	Batched
)

// String returns the name of d in a configuration.
func (d Durability) String() string {
	if d == Batched {
		return "batched"
	}
	return "strict"
}

// UnmarshalText reads the name of a durability.
func (d *Durability) UnmarshalText(text []byte) error {
	switch string(text) {
	case "strict":
		*d = Strict
	case "batched":
		*d = Batched
	default:
		return fmt.Errorf("durability %q: want strict or batched", text)
	}
	return nil
}

// Config configures a log; the zero Config is a strict log of up to 64 GiB.
type Config struct {
	Durability Durability

	// Queue is how many entries may be accepted and not yet on disk; callers
	// beyond that wait. 0 means 4,096 if strict, and 512 if batched.
	Queue int

	// MaxSize is how large the segment may become, in bytes; so much address
	// space is mapped, so that no reader ever stops a commit. 0 means 64 GiB.
	// A log that has no room left is unavailable.
	MaxSize int64
}

// A Log is a log that is open for appending, by this process alone. Its
// methods are safe for concurrent use. Its Reader reads what is committed, and
// is closed with it.
type Log struct {
	*Reader
	committer *committer

	archiveMu sync.Mutex // serializes KeepArchive
	closeOnce func() error
}

// Open opens the log in dir, or makes one there. It returns [ErrLocked] at
// once if the log is open elsewhere, and an [IntegrityError] if the files are
// not those of a log or their last entries do not agree with the head; what
// [Verify] finds beyond that it does not look for.
func Open(dir string, cfg Config) (*Log, error) {
	l, err := open(dir, cfg)
	if err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	return l, nil
}

func open(dir string, cfg Config) (*Log, error) {
	for _, sub := range []string{"", logDir, archiveDir, blobsDir, revisionsDir} {
		if err := makeDir(filepath.Join(dir, sub)); err != nil {
			return nil, err
		}
	}
	path, found, err := findSegment(dir)
	if err != nil {
		return nil, err
	}
	if !found {
		if err := createSegment(path); err != nil {
			return nil, fmt.Errorf("create segment: %w", err)
		}
	}
	seg, err := openSegment(path, cfg.MaxSize)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir, db: seg.DB}
	t, err := r.load()
	if err != nil {
		return nil, errors.Join(err, seg.Close())
	}
	l := &Log{Reader: r, committer: newCommitter(seg, t, r, cfg)}
	l.closeOnce = sync.OnceValue(l.close)
	go l.committer.run()
	return l, nil
}

// Append records e and returns when it is on disk ([Strict]) or queued
// ([Batched]). Whoever gets an error must not answer.
//
//   - [ErrUnavailable]: the entry is not in the log, and a later one may be.
//     Only if ctx ended while the entry was being written can it be there
//     nevertheless; the error then also is the cause of ctx.
//   - [ErrFailed]: the log has failed for good; see [Log.Failed].
//   - Any other error: e itself cannot be recorded.
//
// Append does not keep e.
func (l *Log) Append(ctx context.Context, e *Entry) error {
	rest, err := encode(e)
	if err == nil {
		err = l.committer.append(ctx, rest)
	}
	if err != nil {
		return fmt.Errorf("record entry: %w", err)
	}
	return nil
}

// Failed is closed when the log fails. The process must end then: what is on
// disk is unknown until the log is opened again.
func (l *Log) Failed() <-chan struct{} { return l.committer.failed }

// Err returns nil, or once the log has failed an error that is [ErrFailed].
func (l *Log) Err() error { return l.committer.err() }

// Close commits what is queued and closes the log. Entries of a batched log
// that could not be committed are in the error. A failed log keeps its file
// open and locked until the process ends.
func (l *Log) Close() error { return l.closeOnce() }

func (l *Log) close() error {
	err := l.committer.close()
	if l.Err() == nil {
		err = errors.Join(err, l.Reader.Close())
	}
	if err != nil {
		return fmt.Errorf("close decision log: %w", err)
	}
	return nil
}
