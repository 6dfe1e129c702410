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

	// Batched: when the entry is queued. It is on disk within 100 milliseconds if the disk keeps
	// up. No more entries than the queue holds are pending. They are lost if the process dies, but
	// not if the disk is full: the log retries until it is closed.
	Batched
)

// String returns the name of d in the configuration.
func (d Durability) String() string {
	if d == Batched {
		return "batched"
	}
	return "strict"
}

// MarshalText returns the name of d.
func (d Durability) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses the name of a durability.
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

// Config configures a log. The zero Config is a strict log of up to 64 GiB.
type Config struct {
	Durability Durability

	// Queue is the maximum number of accepted entries that are not yet on disk. Further callers
	// wait. 0 means 4,096 for a strict log and 512 for a batched one.
	Queue int

	// SegmentBytes and SegmentAge are the size and age from which the log starts a new segment, at
	// the next multiple of 256 entries. 0 means 256 MiB and 24 hours.
	SegmentBytes int64
	SegmentAge   time.Duration

	// MaxSize is the maximum size of a segment in bytes. The log maps this much address space so
	// that no reader ever blocks a commit. 0 means 64 GiB. A full log is unavailable.
	MaxSize int64

	// AcceptRollback is the operator's reason for opening a log that has lost its last checkpoint
	// or entries under it. The log records it. "" refuses such a log.
	AcceptRollback string

	// Mask lists further names of members whose values are masked in requests. Unmask lists names
	// that are not masked.
	Mask, Unmask []string

	// OnCommit, if not nil, is called with the number of entries in a commit and the time it took.
	// It must not block.
	OnCommit func(entries int, took time.Duration)

	// OnReadable, if not nil, is called when further entries have become readable without a flush. It must
	// not block.
	OnReadable func()

	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// withDefaults returns the configuration with defaults for zero fields.
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
	if c.OnReadable == nil {
		c.OnReadable = func() {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// A Log is a log that this process has open for appending. No other process can append. Its methods
// are safe for concurrent use. Its Reader reads committed entries and is closed with it.
type Log struct {
	*Reader
	committer *committer
	masker    *masker

	checkpointMu sync.Mutex // serializes Checkpoint and guards published
	notary       *notary
	published    *Checkpoint // by this Log; nil before the first
	publishedAt  time.Time

	archiveMu sync.Mutex // serializes KeepArchive
	closeOnce func() error
}

// Open opens the log in dir and creates it if needed. It returns [ErrLocked] at once if the log is
// open elsewhere. It returns an [IntegrityError] if
//
//   - the files are not those of a log,
//   - a segment is missing or does not continue the one before,
//   - the last segment contradicts its head, or
//   - the log lacks entries under its last checkpoint.
//
// Open does not detect other damage; [Verify] does.
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

// start continues the log after its last entry, if the log satisfies its checkpoint.
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

// openLast opens the last segment for writing, exclusively. It creates the first segment of a new
// log.
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
		return nil, nil, damaged(last.first, "is missing, with all later entries")
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

// Append records e. It returns when the entry is on disk ([Strict]) or queued ([Batched]). It waits in
// any case for an entry that takes a use or a proof of a capability, whose only record the log is. After an error
// the caller must not answer.
//
//   - [ErrUnavailable]: the entry is not in the log; a later one may succeed. If ctx
//
// ended during the write, the entry may be in the log. The error then also wraps the cause of ctx.
//   - [ErrFailed]: the log has failed permanently; see [Log.Failed].
//   - Any other error: e cannot be recorded.
//
// Append masks values of the request that look like secrets, and their copies in the other members.
// It does not keep e.
func (l *Log) Append(ctx context.Context, e *Entry) error {
	return l.append(ctx, e, !l.committer.batched || e.takesUse())
}

// AppendLater records e without waiting. The entry is on disk with the next one that somebody waits
// for, or after five milliseconds if the disk keeps up, and before Close returns. It is lost if the
// process dies before. Once the outcome is known, the log calls done with nil or an error of Append.
// done must not block, and must not append. It is not called if AppendLater returns an error.
func (l *Log) AppendLater(ctx context.Context, e *Entry, done func(error)) error {
	rest, err := l.encode(e)
	if err == nil {
		err = l.committer.enqueue(ctx, &pending{tail: rest, later: done})
	}
	if err != nil {
		return fmt.Errorf("record entry: %w", err)
	}
	return nil
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

// encode returns the masked line of e without its index.
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

// Mask returns v with the masks that the log would record for it in a request.
func (l *Log) Mask(v jsontext.Value) (jsontext.Value, error) {
	masked, _, err := l.masker.mask(v)
	return masked, err
}

// Queued returns the number of accepted entries that are not yet on disk.
func (l *Log) Queued() int { return len(l.committer.slots) }

// Failed is closed when the log fails. The process must then end: the content of the disk is
// unknown until the log is opened again.
func (l *Log) Failed() <-chan struct{} { return l.committer.failed }

// Err returns nil, or an error that is [ErrFailed] after the log has failed.
func (l *Log) Err() error { return l.committer.err() }

// Close commits queued entries and closes the log. The error reports entries of a batched log that
// could not be committed. A failed log keeps its file open and locked until the process ends.
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
