package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/durable"
)

var (
	// ErrClosed is a trail that is written no more, because it was closed or
	// could not be written.
	ErrClosed = errors.New("the audit trail is closed")
	// ErrIntegrity is a trail that is not as it was written.
	ErrIntegrity = errors.New("the audit trail is not as it was written")
	// ErrEnded is an outcome of an intent that has one, or that there is not.
	ErrEnded = errors.New("there is no such intent without an outcome")
)

// A Config says how to keep a trail. Its zero value works.
type Config struct {
	SegmentBytes int64            // after which the next segment begins; 0 is 64 MiB
	Now          func() time.Time // nil is time.Now
}

// A Trail is open for writing, by one process. It is safe for concurrent use.
type Trail struct {
	Config
	dir     string
	unknown []Record
	appends chan *appending
	ended   chan struct{} // closed when the writer has ended

	mu     sync.RWMutex // held to send, so that nothing is sent once it is closed
	closed bool

	// What follows is the writer's.
	file    *os.File
	size    int64
	segment int
	last    head
	open    map[uint64]Record // intents without an outcome
	failed  error
}

// A head is where a trail ends.
type head struct {
	seq  uint64
	hash string // of the last line
}

// An appending is a record that waits to be on disk.
type appending struct {
	record Record
	err    error
	synced chan struct{}
}

// queue is how many records may wait to be written together.
const queue = 1024

// Open opens the trail in a directory, or makes one there. Intents that have no
// outcome get one that is unknown. The error is an [ErrIntegrity] if the last
// segment is not as it was written.
func Open(dir string, c Config) (*Trail, error) {
	if c.SegmentBytes == 0 {
		c.SegmentBytes = 64 << 20
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	t := &Trail{Config: c, dir: dir, appends: make(chan *appending, queue), ended: make(chan struct{}), open: make(map[uint64]Record)}
	if err := t.start(); err != nil {
		return nil, fmt.Errorf("open audit trail: %w", err)
	}
	t.unknown = t.intents()
	go t.write()
	for _, intent := range t.unknown {
		if err := t.Done(intent.Seq, Unknown, "restart"); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// Unknown lists the intents that were open when the trail was opened: calls of
// which nobody can say how they ended.
func (t *Trail) Unknown() []Record { return t.unknown }

// Intent records that a call will be forwarded, and returns its number. Only
// when it has returned may the call be.
func (t *Trail) Intent(c Call) (uint64, error) {
	return t.append(Record{Kind: Intent, Call: c.bounded()})
}

// Done records how the call of an intent has ended. The reason, a code, may be
// empty.
func (t *Trail) Done(intent uint64, o Outcome, reason string) error {
	_, err := t.append(Record{Kind: Done, Of: intent, Outcome: o, Reason: reason})
	return err
}

// Refused records that a call was not forwarded, and why.
func (t *Trail) Refused(c Call, reason string) error {
	_, err := t.append(Record{Kind: Refused, Call: c.bounded(), Reason: reason})
	return err
}

// Close writes what waits, and closes the trail.
func (t *Trail) Close() error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.appends)
	}
	t.mu.Unlock()
	<-t.ended
	return t.file.Close()
}

// append returns when the record is on disk.
func (t *Trail) append(r Record) (uint64, error) {
	a := &appending{record: r, synced: make(chan struct{})}
	t.mu.RLock()
	if t.closed {
		t.mu.RUnlock()
		return 0, ErrClosed
	}
	t.appends <- a
	t.mu.RUnlock()
	<-a.synced
	if a.err != nil {
		return 0, fmt.Errorf("audit %s: %w", r.Kind, a.err)
	}
	return a.record.Seq, nil
}

// write commits what has queued, all at once, until the trail is closed.
func (t *Trail) write() {
	defer close(t.ended)
	for first := range t.appends {
		batch := []*appending{first}
		for len(t.appends) > 0 && len(batch) < queue {
			batch = append(batch, <-t.appends)
		}
		t.commit(batch)
		for _, a := range batch {
			close(a.synced)
		}
	}
}

// commit writes and syncs a batch. When it has failed once, what is on disk is
// not known, and nothing is written any more.
func (t *Trail) commit(batch []*appending) {
	var lines []byte
	for _, a := range batch {
		var line []byte
		line, a.err = t.next(&a.record)
		lines = append(lines, line...)
	}
	if t.failed != nil || len(lines) == 0 {
		return
	}
	if err := t.put(lines); err != nil {
		t.failed = fmt.Errorf("%w: %w", ErrClosed, err)
		for _, a := range batch {
			a.err = errors.Join(a.err, t.failed)
		}
	}
}

func (t *Trail) put(lines []byte) error {
	if _, err := t.file.Write(lines); err != nil {
		return err
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	if t.size += int64(len(lines)); t.size < t.SegmentBytes {
		return nil
	}
	return t.begin()
}

// next makes a record the next one, and returns its line.
func (t *Trail) next(r *Record) ([]byte, error) {
	if t.failed != nil {
		return nil, t.failed
	}
	if _, open := t.open[r.Of]; r.Kind == Done && !open {
		return nil, ErrEnded
	}
	r.Seq, r.Time, r.Prev = t.last.seq+1, t.Now().UTC(), t.last.hash
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write record: %w", err)
	}
	t.take(*r, line)
	return append(line, '\n'), nil
}

// take makes a record the last one.
func (t *Trail) take(r Record, line []byte) {
	t.last = head{r.Seq, hash(line)}
	switch r.Kind {
	case Intent:
		t.open[r.Seq] = r
	case Done:
		delete(t.open, r.Of)
	}
}

func hash(line []byte) string {
	digest := sha256.Sum256(line)
	return hex.EncodeToString(digest[:])
}

// intents lists those that are open, in their order.
func (t *Trail) intents() (all []Record) {
	for _, seq := range slices.Sorted(maps.Keys(t.open)) {
		all = append(all, t.open[seq])
	}
	return all
}

// begin begins the next segment. It is there whole or not at all.
func (t *Trail) begin() error {
	r := Record{Kind: Segment, Open: t.intents()}
	line, err := t.next(&r)
	if err != nil {
		return err
	}
	name := filepath.Join(t.dir, fmt.Sprintf("%08d.jsonl", t.segment+1))
	if err := durable.ReplaceFile(name, line); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if t.file != nil {
		if err := t.file.Close(); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	t.file, t.size = file, int64(len(line))
	t.segment++
	return nil
}

// start takes up the trail where its last record is. What stands behind that is
// the beginning of one that was never acknowledged, and is dropped.
func (t *Trail) start() error {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	names, err := segments(t.dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return t.begin()
	}
	name := names[len(names)-1]
	if t.segment, err = number(name); err != nil {
		return err
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	whole := content[:bytes.LastIndexByte(content, '\n')+1]
	t.size = int64(len(whole))
	for r, err := range records(whole, head{}) {
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		for _, intent := range r.Open {
			t.open[intent.Seq] = intent
		}
		t.take(r.Record, r.line)
	}
	if t.last.seq == 0 {
		return fmt.Errorf("%s: %w: it has no record", filepath.Base(name), ErrIntegrity)
	}
	if t.file, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return err
	}
	if len(whole) < len(content) {
		return errors.Join(t.file.Truncate(t.size), t.file.Sync())
	}
	return nil
}
