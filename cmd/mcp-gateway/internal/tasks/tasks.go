package tasks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

var (
	// ErrForeign is a task that a server began for somebody and now names to
	// somebody else.
	ErrForeign = errors.New("the server names a task of another caller")
	// ErrFull means that no more tasks are remembered.
	ErrFull = errors.New("there are too many tasks")
)

// How long a task is remembered: as long as its server keeps it, and within these
// bounds. A server may come to keep it longer than it said.
const (
	least = 24 * time.Hour
	most  = 30 * 24 * time.Hour
)

// A Config says how tasks are remembered.
type Config struct {
	File string // of the store
	// PerCaller and Limit bound the tasks of each caller and altogether. 0 is 10,000
	// and 100,000.
	PerCaller, Limit int
	Now              func() time.Time // nil is time.Now
}

// An Owners knows whose the tasks are. It is safe for concurrent use.
type Owners struct {
	cfg Config
	db  *bbolt.DB

	mu       sync.Mutex // held to write
	ofCaller map[string]int
	total    int
}

// An owner is whose a task is.
type owner struct {
	Tenant string    `json:"tenant,omitzero"`
	Type   string    `json:"type"`
	ID     string    `json:"id"`
	Until  time.Time `json:"until"`
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

// Open opens the store, or makes it. The caller closes the Owners.
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

// sweep forgets tasks that are over, and counts the others.
func (o *Owners) sweep() error {
	now := o.cfg.Now()
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

// of returns whose a task is, or nil.
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

// isOf reports whether a task is a caller's.
func (o *Owners) isOf(c *enforce.Call, id string) (bool, error) {
	of, err := o.of(c.Server, id)
	return of != nil && of.key() == ownerOf(c.Caller).key(), err
}

// Check refuses a call that names a task which is not its caller's: tasks/get and
// the like, whoever listens to tasks, and calls that say they are related to some.
func (o *Owners) Check(c *enforce.Call) error {
	named, err := names(c)
	if err != nil {
		return err
	}
	for _, id := range named {
		is, err := o.isOf(c, id)
		if err != nil {
			return err
		}
		if !is {
			return enforce.NoSuchTask()
		}
	}
	return nil
}

// names lists the tasks that a call names.
func names(c *enforce.Call) ([]string, error) {
	switch c.Message.Method {
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return []string{c.Params.TaskID}, nil
	}
	if c.Message.Params == nil {
		return nil, nil
	}
	var params struct {
		Meta struct {
			Related []string `json:"io.modelcontextprotocol/relatedTaskIds"`
		} `json:"_meta"`
		Notifications jsontext.Value `json:"notifications"`
	}
	var listens struct {
		IDs []string `json:"taskIds"`
	}
	err := json.Unmarshal(c.Message.Params, &params)
	if err == nil && c.Message.Method == "subscriptions/listen" && params.Notifications != nil {
		err = json.Unmarshal(params.Notifications, &listens)
	}
	if err != nil {
		return nil, &enforce.Refusal{Code: wire.CodeParams, Status: 200, Message: "the tasks that are named cannot be read", Data: enforce.Data{Reason: enforce.ReasonInvalidMessage}}
	}
	return append(listens.IDs, params.Meta.Related...), nil
}

// A task is what the result of a call says of the one that it has begun.
type task struct {
	ID    string         `json:"taskId"`
	TTL   jsontext.Value `json:"ttl"`   // up to 2025-11-25
	TTLms jsontext.Value `json:"ttlMs"` // of the extension
}

// Answered returns what the caller gets of the result of a call: what begins a
// task once it is on disk whose that is, and of a list of tasks those that are
// the caller's. It is [enforce.Config.Answered].
func (o *Owners) Answered(_ context.Context, c *enforce.Call, result jsontext.Value) (jsontext.Value, error) {
	switch c.Message.Method {
	case "tasks/list":
		return o.filter(c, result)
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return result, nil
	}
	var begun struct {
		Type string `json:"resultType"`
		task
		Older task `json:"task"`
	}
	members := map[string]jsontext.Value{}
	if err := json.Unmarshal(result, &members); err != nil {
		return nil, err
	}
	if string(members["resultType"]) != `"task"` && members["task"].Kind() != '{' {
		return result, nil
	}
	if err := json.Unmarshal(result, &begun); err != nil {
		return nil, fmt.Errorf("read task: %w", err)
	}
	for _, t := range []task{begun.task, begun.Older} {
		if t.ID == "" {
			continue
		}
		if err := o.keep(c, t); err != nil {
			return nil, fmt.Errorf("keep task: %w", err)
		}
	}
	return result, nil
}

// keep remembers whose a task is.
func (o *Owners) keep(c *enforce.Call, t task) error {
	until := most
	for _, text := range []jsontext.Value{t.TTL, t.TTLms} {
		var ms int64
		if json.Unmarshal(text, &ms) == nil && ms > 0 && ms < most.Milliseconds() {
			until = max(least, time.Duration(ms)*time.Millisecond)
		}
	}
	of := ownerOf(c.Caller)
	of.Until = o.cfg.Now().Add(until)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isFull(of) {
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

// filter takes from a list of tasks those that are not the caller's.
func (o *Owners) filter(c *enforce.Call, result jsontext.Value) (jsontext.Value, error) {
	members := map[string]jsontext.Value{}
	if err := json.Unmarshal(result, &members); err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	var all []jsontext.Value
	if err := json.Unmarshal(members["tasks"], &all); err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	own := []jsontext.Value{}
	for _, text := range all {
		var t task
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, fmt.Errorf("read tasks: %w", err)
		}
		is, err := o.isOf(c, t.ID)
		if err != nil {
			return nil, err
		}
		if is {
			own = append(own, text)
		}
	}
	var err error
	if members["tasks"], err = json.Marshal(own); err != nil {
		return nil, err
	}
	return json.Marshal(members, json.Deterministic(true))
}

// Tells reports whether the caller of a call is told a notification of the
// server: not how a task stands that is not the caller's.
func (o *Owners) Tells(c *enforce.Call, m *wire.Message) bool {
	if m.Method != "notifications/tasks" && m.Method != "notifications/tasks/status" {
		return true
	}
	params, err := m.Read()
	if err != nil {
		return false
	}
	is, err := o.isOf(c, params.TaskID)
	return is && err == nil
}
