package decisionlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
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

// MarshalText returns the name of d.
func (d Durability) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the name of a durability.
func (d *Durability) UnmarshalText(text []byte) error {
	switch string(text) {
	case "strict":
		*d = Strict
	case "batched":
		*d = Batched
	default:
		return fmt.Errorf("must be strict or batched, not %q", text)
	}
	return nil
}

// Config configures a log; the zero Config is a strict log of up to 64 GiB.
type Config struct {
	Durability Durability

	// Queue is how many entries may be accepted and not yet on disk; callers
	// beyond that wait. 0 means 4,096 if strict, and 512 if batched.
	Queue int

	// SegmentBytes and SegmentAge are how large and how old a segment becomes
	// before the next is begun, with the next multiple of 256 entries. 0 means
	// 256 MiB and 24 hours.
	SegmentBytes int64
	SegmentAge   time.Duration

	// MaxSize is how large a segment may become whatever happens, in bytes; so
	// much address space is mapped, so that no reader ever stops a commit. 0
	// means 64 GiB. A log that has no room left is unavailable.
	MaxSize int64

	// AcceptRollback is why a log is opened that lacks what its last checkpoint
	// has, or has lost the checkpoint. It becomes an entry. "" refuses to.
	AcceptRollback string

	// Mask lists names of members whose values are masked in requests, beside
	// those that look like secrets; Unmask lists names that are not.
	Mask, Unmask []string

	// OnCommit, if there is one, is told how long it took to put so many entries
	// on disk. It must not wait.
	OnCommit func(entries int, took time.Duration)

	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// withDefaults returns the configuration with what it leaves open.
func (c Config) withDefaults() Config {
	if c.SegmentBytes == 0 {
		c.SegmentBytes = 256 << 20
	}
	if c.SegmentAge == 0 {
		c.SegmentAge = 24 * time.Hour
	}
	if c.MaxSize == 0 {
		c.MaxSize = 64 << 30
	}
	if c.OnCommit == nil {
		c.OnCommit = func(int, time.Duration) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// A Log is a log that is open for appending, by this process alone. Its
// methods are safe for concurrent use. Its Reader reads what is committed, and
// is closed with it.
type Log struct {
	*Reader
	committer *committer
	masker    *masker

	checkpointMu sync.Mutex // serializes Checkpoint, and guards what it uses
	notary       *notary
	published    *Checkpoint // by this Log; nil before the first

	archiveMu sync.Mutex // serializes KeepArchive
	closeOnce func() error
}

// Open opens the log in dir, or makes one there. It returns [ErrLocked] at
// once if the log is open elsewhere, and an [IntegrityError] if the files are
// not those of a log, if a segment is missing or does not continue the one
// before, if the last does not agree with its head, or if the log lacks what
// its last checkpoint has; what [Verify] finds beyond that it does not look
// for.
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
	cfg = cfg.withDefaults()
	seg, r, err := openLast(dir, cfg)
	if err != nil {
		return nil, err
	}
	l := &Log{Reader: r}
	if err := l.start(seg, cfg); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return l, nil
}

// start takes up the log where its last entry is, if it has all that it should
// have.
func (l *Log) start(seg *segment, cfg Config) error {
	t, err := l.load()
	if err != nil {
		return err
	}
	fault := l.checkAgainstCheckpoint()
	if fault != nil && (cfg.AcceptRollback == "" || !errors.Is(fault, ErrRolledBack)) {
		return fault
	}
	if err := l.setSkipPageCheck(false); err != nil {
		return err
	}
	if l.notary, err = notaryOf(l.dir, l.Head()); err != nil {
		return err
	}
	if err := seg.setOrigin(l.notary.origin()); err != nil {
		return err
	}
	if l.masker, err = newMasker(l.dir, cfg.Mask, cfg.Unmask); err != nil {
		return err
	}
	journaled, missing := readJournal(l.dir, t.size)
	if missing != nil && (cfg.AcceptRollback == "" || !errors.Is(missing, ErrRolledBack)) {
		return missing
	}
	fault = cmp.Or(fault, missing)
	l.committer = newCommitter(seg, t, l.Reader, l.notary.origin(), cfg)
	if err := l.committer.start(journaled); err != nil {
		return err
	}
	l.flushed, l.strict = l.committer.flushed, !l.committer.batched
	l.closeOnce = sync.OnceValue(l.close)
	if fault != nil {
		if err := l.acceptRollback(cfg.AcceptRollback, fault); err != nil {
			return errors.Join(err, l.committer.close())
		}
	}
	return nil
}

// openLast opens the last segment for writing, which no one else does then,
// and makes the first.
func openLast(dir string, cfg Config) (*segment, *Reader, error) {
	parts, err := listSegments(dir)
	if err != nil {
		return nil, nil, err
	}
	if len(parts) == 0 {
		first := &segmentReader{path: segmentFile(dir, 0, segmentExt)}
		if err := createSegment(first.path, segmentMeta{base: new(tree).head(), created: cfg.Now()}); err != nil {
			return nil, nil, fmt.Errorf("create segment: %w", err)
		}
		parts = []*segmentReader{first}
	}
	last := parts[len(parts)-1]
	if last.pruned() {
		return nil, nil, damaged(last.first, "is missing, with all behind it")
	}
	seg, err := openSegment(last.path, cfg.MaxSize)
	if err != nil {
		return nil, nil, err
	}
	last.db = seg.DB
	r := &Reader{dir: dir}
	r.segments.Store(&parts)
	if err := stillLast(dir, last); err != nil {
		return nil, nil, errors.Join(err, seg.Close())
	}
	return seg, r, nil
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
// What looks like a secret in the request is masked, there and in what followed
// from it. Append does not keep e.
func (l *Log) Append(ctx context.Context, e *Entry) error {
	return l.append(ctx, e, !l.committer.batched)
}

func (l *Log) append(ctx context.Context, e *Entry, strict bool) error {
	rest, err := l.encode(e)
	if err == nil {
		err = l.committer.append(ctx, rest, strict)
	}
	if err != nil {
		return fmt.Errorf("record entry: %w", err)
	}
	return nil
}

// encode returns the line of e without its beginning, and with what is masked.
func (l *Log) encode(e *Entry) ([]byte, error) {
	request, masked, known, err := l.masker.maskRequest(e.Request)
	if err != nil {
		return nil, err
	}
	recorded := *e
	recorded.Request, recorded.Masked = request, append(masked, e.Masked...)
	if known != nil || suspectText(e.RequestID) {
		if err := l.masker.maskRest(&recorded, known); err != nil {
			return nil, err
		}
	}
	return encode(&recorded)
}

// Mask returns JSON as the log would record it in a request: what looks like a
// secret has the mask that it has there.
func (l *Log) Mask(v jsontext.Value) (jsontext.Value, error) {
	masked, _, err := l.masker.mask(v)
	return masked, err
}

// Queued is how many entries are accepted and not yet on disk.
func (l *Log) Queued() int { return len(l.committer.slots) }

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
		_, signed := l.Checkpoint()
		err = errors.Join(err, signed, l.Reader.Close())
	}
	if err != nil {
		return fmt.Errorf("close decision log: %w", err)
	}
	return nil
}
