package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

var (
	// ErrEnded means that no forwarded call of that id lacks an outcome.
	ErrEnded = errors.New("no call of that id waits for an outcome")
	// ErrLocked means that another process has the trail.
	ErrLocked = decisionlog.ErrLocked
)

// A Config configures a trail. Its zero value works.
type Config struct {
	PendingEvery int              // entries between two of kind gateway.pending; 0 is 4,096
	Now          func() time.Time // nil is time.Now
}

// A Trail is open for writing, by one process. It is safe for concurrent use.
type Trail struct {
	cfg     Config
	log     *decisionlog.Log
	unknown []Pending

	// writing is held shared to write an entry, and alone to write the ids of the
	// pending calls: these are exact then.
	writing sync.RWMutex

	mu      sync.Mutex
	pending map[string]pendingCall // by id
	lost    map[string]pendingCall // that were pending when the trail was opened, by id
	entries int                    // since the last gateway.pending
}

// A pendingCall is what the outcome of a call repeats.
type pendingCall struct {
	tenant, requestID, traceID string
	entry                      Entry
}

// Open opens the trail in a directory, or makes one there. Pending calls get the
// outcome unknown. The error is [ErrLocked] if another process has the
// trail, and a [decisionlog.IntegrityError] if the trail is not as it was written.
func Open(dir string, cfg Config) (*Trail, error) {
	cfg.PendingEvery = cmp.Or(cfg.PendingEvery, 4096)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	log, err := decisionlog.Open(dir, decisionlog.Config{Now: cfg.Now})
	if errors.Is(err, decisionlog.ErrLocked) {
		return nil, fmt.Errorf("open audit trail %s: another process uses it, which may be a gateway with the same state directory: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open audit trail %s: %w", dir, err)
	}
	t := &Trail{cfg: cfg, log: log, pending: make(map[string]pendingCall), lost: make(map[string]pendingCall)}
	if err := t.restart(); err != nil {
		return nil, errors.Join(fmt.Errorf("open audit trail %s: %w", dir, err), log.Close())
	}
	return t, nil
}

// Mask returns a JSON value with what looks like secrets masked as in the trail.
func (t *Trail) Mask(v jsontext.Value) (jsontext.Value, error) { return t.log.Mask(v) }

// Unknown lists the calls that were pending when the trail was opened: nobody can
// say how they ended.
func (t *Trail) Unknown() []Pending { return t.unknown }

// A PastCall is a forwarded call of the trail.
type PastCall struct {
	Time    time.Time
	Server  string
	Method  string
	Tool    string
	Subject Entity
	Tenant  string
}

// Forwarded returns the forwarded calls since a time, oldest first.
func (t *Trail) Forwarded(ctx context.Context, since time.Time) iter.Seq2[PastCall, error] {
	return func(yield func(PastCall, error) bool) {
		for line, err := range t.log.Select(ctx, decisionlog.Filter{Kind: decisionlog.KindGatewayCall, Since: since}) {
			var past PastCall
			if err == nil {
				past, err = readPastCall(line)
			}
			if !yield(past, err) || err != nil {
				return
			}
		}
	}
}

func readPastCall(line []byte) (PastCall, error) {
	var record decisionlog.Record
	if err := json.Unmarshal(line, &record); err != nil {
		return PastCall{}, fmt.Errorf("read entry: %w", err)
	}
	var entry Entry
	if err := json.Unmarshal(record.Request, &entry); err != nil {
		return PastCall{}, fmt.Errorf("read call %s: %w", record.ID, err)
	}
	past := PastCall{Time: record.Time, Server: entry.Server, Tool: entry.Tool, Tenant: record.Tenant}
	if entry.Subject != nil {
		past.Subject = *entry.Subject
	}
	if entry.Action != nil {
		past.Method = entry.Action.Name
	}
	return past, nil
}

// A Retention says which entries stay: sealed segments up to that age, and up to that
// size in bytes. 0 is no limit.
type Retention struct {
	Age   time.Duration
	Bytes int64
	// Keep returns the time for which entries stay whatever their size is; nil is 0.
	Keep func() time.Duration
}

// of returns the retention at a time.
func (r Retention) of(now time.Time) decisionlog.Retention {
	kept := decisionlog.Retention{Age: r.Age, Bytes: r.Bytes}
	if r.Keep != nil {
		kept.Hold = []decisionlog.Period{{From: now.Add(-r.Keep())}}
	}
	return kept
}

// Prune removes the oldest entries regularly, until ctx ends. Hashes of removed
// entries stay, so that the rest of the trail can be verified.
func (t *Trail) Prune(ctx context.Context, r Retention, log *slog.Logger) {
	if r.Age == 0 && r.Bytes == 0 {
		return
	}
	look := time.NewTicker(pruneInterval)
	defer look.Stop()
	for {
		entries, err := t.log.Prune(ctx, r.of(t.cfg.Now()))
		if entries > 0 {
			log.Info("audit trail pruned", "entries", entries)
			err = errors.Join(err, t.writePending()) // the last list may have been removed
		}
		if err != nil && ctx.Err() == nil {
			log.Error("audit trail not pruned", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// pruneInterval is the time between two looks for entries to remove.
const pruneInterval = time.Minute

// Failed is closed when the trail cannot tell what is on disk. It takes no more
// entries, and the process has to end.
func (t *Trail) Failed() <-chan struct{} { return t.log.Failed() }

// Err returns nil, or once the trail has failed why.
func (t *Trail) Err() error { return t.log.Err() }

// Close closes the trail. Calls without an outcome are unknown when it is opened
// again.
func (t *Trail) Close() error { return t.log.Close() }

// Forward records that a call will be forwarded, and returns the id of the entry.
// Only when it has returned may the call be forwarded.
func (t *Trail) Forward(c Call) (id string, err error) {
	c = c.bounded()
	p := pendingCall{tenant: c.Tenant, requestID: c.RequestID, traceID: c.TraceID, entry: c.entry(forwarded)}
	id = newID()
	err = t.write(func() error {
		if err := t.append(decisionlog.KindGatewayCall, id, p); err != nil {
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pending[id] = p
		return nil
	})
	return id, err
}

// Done records how the call of an id has ended. The reason, a code, may be empty.
func (t *Trail) Done(id string, o Outcome, reason string) error {
	return t.write(func() error {
		p, err := t.take(id)
		if err != nil {
			return err
		}
		if err = t.append(decisionlog.KindGatewayOutcome, newID(), p.ended(id, o, reason)); err != nil {
			t.putBack(id, p)
		}
		return err
	})
}

// DoneLater is Done for a call whose client does not wait for the entry: it is on disk within
// milliseconds, and before Close returns. After a crash before that, the outcome is unknown.
// If the entry cannot be written, failed gets the error. It must not block.
func (t *Trail) DoneLater(id string, o Outcome, reason string, failed func(error)) {
	t.writing.RLock() // until the entry is written
	p, err := t.take(id)
	if err == nil {
		err = t.appendLater(decisionlog.KindGatewayOutcome, newID(), p.ended(id, o, reason), func(err error) {
			t.wroteLater(id, p, err, failed)
		})
	}
	if err != nil {
		t.wroteLater(id, p, err, failed)
	}
}

// wroteLater ends the writing of an outcome.
func (t *Trail) wroteLater(id string, p pendingCall, err error, failed func(error)) {
	if err != nil && !errors.Is(err, ErrEnded) {
		t.putBack(id, p)
	}
	t.mu.Lock()
	t.entries++ // the next entry that is waited for writes the list where it is due
	t.mu.Unlock()
	t.writing.RUnlock()
	if err != nil {
		failed(err)
	}
}

// take removes a pending call, to write its outcome.
func (t *Trail) take(id string) (pendingCall, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, pending := t.pending[id]
	if !pending {
		return p, ErrEnded
	}
	delete(t.pending, id)
	return p, nil
}

// putBack makes a call pending again whose outcome was not written.
func (t *Trail) putBack(id string, p pendingCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending[id] = p
}

// ended returns the outcome of the call of an id.
func (p pendingCall) ended(id string, o Outcome, reason string) pendingCall {
	p.entry.Event, p.entry.Call, p.entry.Reason = string(o), id, reason
	p.entry.Why, p.entry.NotCarriedOut = "", nil
	return p
}

// Resumed records how a call has ended whose client resumed the response stream.
// The call may be one of [Trail.Unknown]: its outcome is known then after all.
func (t *Trail) Resumed(id string, o Outcome) error {
	t.mu.Lock()
	if p, lost := t.lost[id]; lost {
		delete(t.lost, id)
		t.pending[id] = p
	}
	t.mu.Unlock()
	return t.Done(id, o, "resumed")
}

// Refused records that a call was not forwarded, and why.
func (t *Trail) Refused(c Call, reason string) error {
	c = c.bounded()
	p := pendingCall{tenant: c.Tenant, requestID: c.RequestID, traceID: c.TraceID, entry: c.entry(refused)}
	p.entry.Reason = reason
	return t.write(func() error { return t.append(decisionlog.KindGatewayRefused, newID(), p) })
}

// write writes an entry with do, and the ids of the pending calls where they are
// due.
func (t *Trail) write(do func() error) error {
	t.writing.RLock()
	err := do()
	t.writing.RUnlock()
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.entries++
	due := t.entries >= t.cfg.PendingEvery
	t.mu.Unlock()
	if !due {
		return nil
	}
	// The entry is on disk: that the list cannot be written is no error of its
	// caller, and the next entry tries again.
	_ = t.writePending()
	return nil
}

// append writes an entry to the log, and returns when it is on disk. The end of a
// client's request does not end it.
func (t *Trail) append(kind decisionlog.Kind, id string, p pendingCall) error {
	e, err := t.logEntry(kind, id, p)
	if err == nil {
		err = t.log.Append(context.Background(), e)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}

// appendLater is append for an entry that nobody waits for. done gets the outcome, unless
// appendLater returns an error.
func (t *Trail) appendLater(kind decisionlog.Kind, id string, p pendingCall, done func(error)) error {
	e, err := t.logEntry(kind, id, p)
	if err == nil {
		err = t.log.AppendLater(context.Background(), e, done)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}

func (t *Trail) logEntry(kind decisionlog.Kind, id string, p pendingCall) (*decisionlog.Entry, error) {
	request, err := json.Marshal(p.entry)
	return &decisionlog.Entry{
		ID: id, Time: t.cfg.Now(), Kind: kind, Tenant: p.tenant, Request: request, RequestID: p.requestID, TraceID: p.traceID,
	}, err
}

// newID returns an id by which the log finds an entry.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// sortedIDs returns the ids of the pending calls in their order of time.
func (t *Trail) sortedIDs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.pending))
}
