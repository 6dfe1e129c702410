// Package outbox records the transitions of a store in the decision log.
//
// # Guarantees
//
// A transition is committed together with its record, which [Append] adds to a bucket of the same
// bbolt file. Nobody learns of the transition before the record is in the log: [Outbox.Transact]
// returns after that, and [Outbox.View] reads nothing while a record is missing there. A record
// whose outcome is unknown, because the log failed or the process ended, is recorded by the next
// call with the same id, unless the log has it already.
//
// # On disk
//
//	outbox     sequence, 8 bytes big-endian → record that is not in the log yet, as JSON
package outbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	bolt "go.etcd.io/bbolt"
)

// Bucket is the name of the bucket. The store creates it.
var Bucket = []byte("outbox")

// A Record is the log entry of a transition.
type Record struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"` // of the entry
	Time      time.Time      `json:"time"`
	Tenant    string         `json:"tenant,omitzero"`
	Caller    string         `json:"caller,omitzero"` // the PEP or the approver's credential; "" for the service itself
	RequestID string         `json:"request_id,omitzero"`
	Body      jsontext.Value `json:"body"`
}

// WithBody returns the record with a new id and the JSON of body. The values of body must have been
// parsed from JSON.
func (r Record) WithBody(body any) Record {
	text, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	r.ID, r.Body = uuid.Must(uuid.NewV7()).String(), text
	return r
}

// Config connects an outbox with its store and the log. Record is required.
type Config struct {
	// Record records a transition and returns when the record is durable.
	Record func(context.Context, Record) error
	// Recorded reports whether the log has a record whose outcome was unknown. If it is nil, such a
	// record is recorded again with the same id.
	Recorded func(ctx context.Context, id string) (bool, error)
	// Update runs a read-write transaction of the store. If it is nil, that is (*bolt.DB).Update.
	Update func(func(*bolt.Tx) error) error
	// Logged is called, while the outbox is locked, when the records of all committed transactions are
	// in the log. It may be nil.
	Logged func()
}

// An Outbox is safe for concurrent use.
type Outbox struct {
	config Config
	db     *bolt.DB

	mu      sync.Mutex    // makes a transition and its record atomic for others
	behind  bool          // the bucket may hold records
	changed chan struct{} // closed and replaced at every transition

	unsettled atomic.Bool // behind, when nobody holds mu
}

// New returns the outbox of a store.
func New(db *bolt.DB, c Config) *Outbox {
	if c.Update == nil {
		c.Update = db.Update
	}
	if c.Logged == nil {
		c.Logged = func() {}
	}
	o := &Outbox{config: c, db: db, behind: true, changed: make(chan struct{})}
	o.unsettled.Store(true)
	return o
}

// Append adds records to the outbox, in a transaction of [Outbox.Transact].
func Append(tx *bolt.Tx, records ...Record) error {
	outbox := tx.Bucket(Bucket)
	for _, r := range records {
		sequence, err := outbox.NextSequence()
		if err != nil {
			return err
		}
		value, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode record: %w", err)
		}
		if err := outbox.Put(binary.BigEndian.AppendUint64(nil, sequence), value); err != nil {
			return err
		}
	}
	return nil
}

// Records yields the records that may not be in the log yet.
func Records(tx *bolt.Tx) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		c := tx.Bucket(Bucket).Cursor()
		for key, value := c.First(); key != nil; key, value = c.Next() {
			r, err := decode(value)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

func decode(value []byte) (r Record, err error) {
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("read record: %w", err)
	}
	return r, nil
}

// Transact commits a transition with its record and returns when both are durable. If the log
// fails, the transition remains, and View returns no data until the record is in the log.
func (o *Outbox) Transact(ctx context.Context, f func(*bolt.Tx) error) error {
	o.mu.Lock()
	defer o.unlock()
	if err := o.recover(ctx); err != nil {
		return err
	}
	o.behind = true
	if err := o.config.Update(f); err != nil {
		return err
	}
	return o.flush(ctx, o.config.Record)
}

// View reads data whose records are all in the log.
func (o *Outbox) View(ctx context.Context, f func(*bolt.Tx) error) error {
	o.mu.Lock()
	defer o.unlock()
	if err := o.recover(ctx); err != nil {
		return err
	}
	return o.db.View(f)
}

// Settle returns nil if the log has the records of all transitions that have returned. It waits for
// no transition under way, and it costs nothing unless an earlier one failed.
func (o *Outbox) Settle(ctx context.Context) error {
	if !o.unsettled.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.unlock()
	return o.recover(ctx)
}

// Changed returns a channel that is closed at the next transition.
func (o *Outbox) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *Outbox) unlock() {
	o.unsettled.Store(o.behind)
	o.mu.Unlock()
}

// recover moves records that an earlier attempt left in the outbox into the log. It checks first
// whether the log has them already.
func (o *Outbox) recover(ctx context.Context) error {
	if !o.behind {
		return nil
	}
	return o.flush(ctx, func(ctx context.Context, r Record) error {
		if o.config.Recorded != nil {
			if done, err := o.config.Recorded(ctx, r.ID); done || err != nil {
				return err
			}
		}
		return o.config.Record(ctx, r)
	})
}

// flush moves the records of the outbox into the log. Then it wakes waiting calls.
func (o *Outbox) flush(ctx context.Context, record func(context.Context, Record) error) error {
	var sent [][]byte
	err := o.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(Bucket).ForEach(func(key, value []byte) error {
			r, err := decode(value)
			if err != nil {
				return err
			}
			sent = append(sent, append([]byte{}, key...))
			return record(ctx, r)
		})
	})
	if err != nil {
		return fmt.Errorf("record transition: %w", err)
	}
	o.config.Logged()
	if o.behind = len(sent) > 0; !o.behind {
		return nil
	}
	close(o.changed)
	o.changed = make(chan struct{})
	if err := o.config.Update(func(tx *bolt.Tx) error { return remove(tx, sent) }); err != nil {
		return err
	}
	o.behind = false
	return nil
}

// remove removes records from the outbox.
func remove(tx *bolt.Tx, keys [][]byte) error {
	for _, key := range keys {
		if err := tx.Bucket(Bucket).Delete(key); err != nil {
			return err
		}
	}
	return nil
}
