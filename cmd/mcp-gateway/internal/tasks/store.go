package tasks

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/results"
)

var (
	// ErrForeign means that a server names the task of one caller to another.
	ErrForeign = errors.New("the server names a task of another caller")
	// ErrFull means that the store has reached its limit.
	ErrFull = errors.New("there are too many tasks")
)

// Limits of the time for which the owner of a task is stored. It is the time for which
// the server keeps the task; a server may keep it longer than it said.
const (
	least = 24 * time.Hour
	most  = 30 * 24 * time.Hour
)

// A Config configures [Owners].
type Config struct {
	File string // of the store
	// PerCaller and Limit are the maximum numbers of tasks of a caller and of all
	// callers. 0 is 10,000 and 100,000.
	PerCaller, Limit int
	Now              func() time.Time // nil is time.Now
}

// Owners stores the owners of tasks. It is safe for concurrent use.
type Owners struct {
	cfg Config
	db  *bbolt.DB

	mu       sync.Mutex // held to write
	ofCaller map[string]int
	total    int
	swept    time.Time
}

// An owner is the caller that began a task.
type owner struct {
	Tenant string    `json:"tenant,omitzero"`
	Type   string    `json:"type"`
	ID     string    `json:"id"`
	Until  time.Time `json:"until"`
	// Results are the obligations on the result of the task.
	Results results.Rules `json:"results,omitzero"`
}

func ownerOf(c *enforce.Caller) owner {
	return owner{Tenant: c.Tenant, Type: c.Subject.Type, ID: c.Subject.ID}
}

// key names the caller.
func (o owner) key() string {
	return strconv.Quote(o.Tenant) + strconv.Quote(o.Type) + strconv.Quote(o.ID)
}

var bucketOwners = []byte("owners")

func keyOf(server, id string) []byte { return []byte(server + "\x00" + id) }

// Open opens the store, or creates it. The caller closes the Owners.
func Open(cfg Config) (*Owners, error) {
	if cfg.PerCaller == 0 {
		cfg.PerCaller = 10_000
	}
	if cfg.Limit == 0 {
		cfg.Limit = 100_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	db, err := bbolt.Open(cfg.File, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("open tasks: %w", err)
	}
	o := &Owners{cfg: cfg, db: db}
	if err := o.sweep(); err != nil {
		return nil, errors.Join(fmt.Errorf("open tasks: %w", err), db.Close())
	}
	return o, nil
}

// Close closes the store.
func (o *Owners) Close() error { return o.db.Close() }

// sweep removes expired tasks, and counts the others.
func (o *Owners) sweep() error {
	now := o.cfg.Now()
	o.swept = now
	return o.db.Update(func(tx *bbolt.Tx) error {
		owners, err := tx.CreateBucketIfNotExists(bucketOwners)
		if err != nil {
			return err
		}
		o.ofCaller, o.total = make(map[string]int), 0
		var over [][]byte
		err = owners.ForEach(func(k, value []byte) error {
			var of owner
			if err := json.Unmarshal(value, &of); err != nil {
				return fmt.Errorf("read task %q: %w", k, err)
			}
			if now.After(of.Until) {
				over = append(over, k)
				return nil
			}
			o.ofCaller[of.key()]++
			o.total++
			return nil
		})
		for _, k := range over {
			err = errors.Join(err, owners.Delete(k))
		}
		return err
	})
}

// of returns the owner of a task, or nil.
func (o *Owners) of(server, id string) (of *owner, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		of, err = o.read(tx, server, id)
		return err
	})
	return of, err
}

func (o *Owners) read(tx *bbolt.Tx, server, id string) (*owner, error) {
	value := tx.Bucket(bucketOwners).Get(keyOf(server, id))
	if value == nil {
		return nil, nil
	}
	of := new(owner)
	if err := json.Unmarshal(value, of); err != nil {
		return nil, fmt.Errorf("read task %q: %w", id, err)
	}
	if o.cfg.Now().After(of.Until) {
		return nil, nil
	}
	return of, nil
}

// A task is the part of a result that describes the task that a call began.
type task struct {
	ID    string         `json:"taskId"`
	TTL   jsontext.Value `json:"ttl"`   // up to 2025-11-25
	TTLms jsontext.Value `json:"ttlMs"` // of the extension
}

// keep stores the owner of a task.
func (o *Owners) keep(c *enforce.Call, t task) error {
	until := most
	for _, text := range []jsontext.Value{t.TTL, t.TTLms} {
		var ms int64
		if json.Unmarshal(text, &ms) == nil && ms > 0 && ms < most.Milliseconds() {
			until = max(least, time.Duration(ms)*time.Millisecond)
		}
	}
	of := ownerOf(c.Caller)
	of.Until, of.Results = o.cfg.Now().Add(until), c.Results
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isFull(of) && o.cfg.Now().Sub(o.swept) >= time.Minute { // it takes a while
		if err := o.sweep(); err != nil {
			return err
		}
	}
	fresh := false
	err := o.db.Update(func(tx *bbolt.Tx) error {
		was, err := o.read(tx, c.Server, t.ID)
		switch {
		case err != nil:
			return err
		case was != nil && was.key() != of.key():
			return ErrForeign
		case was == nil && o.isFull(of):
			return ErrFull
		}
		fresh = was == nil
		if !fresh { // a server that names the task of another call does not get it rid of obligations
			of.Results = was.Results.And(of.Results)
		}
		value, err := json.Marshal(of)
		if err != nil {
			return err
		}
		return tx.Bucket(bucketOwners).Put(keyOf(c.Server, t.ID), value)
	})
	if err == nil && fresh {
		o.ofCaller[of.key()]++
		o.total++
	}
	return err
}

func (o *Owners) isFull(of owner) bool {
	return o.total >= o.cfg.Limit || o.ofCaller[of.key()] >= o.cfg.PerCaller
}
