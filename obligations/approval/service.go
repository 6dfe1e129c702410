package approval

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// FileName is the file of the state directory that holds the requests.
const FileName = "approvals.db"

// Config joins the service to the others. BaseURL, Template, May and Record
// are required.
type Config struct {
	// BaseURL is what PEPs call the service; a tenant's is below it.
	BaseURL string
	// Template returns the terms of a template as they are now.
	Template func(tenant, name string) (authzen.ApprovalTemplate, error)
	// CanApprove decides whether an approver may decide a request.
	CanApprove func(context.Context, Check) (bool, error)
	// Record records a transition, and returns when the record is durable.
	Record func(context.Context, Record) error
	// Recorded reports whether a record that may have been recorded was. Without
	// it such a record is recorded again, under the same id.
	Recorded func(ctx context.Context, id string) (bool, error)
	// FindDenial resolve a denial that is named by its evaluation alone. Without
	// it such a denial proves nothing.
	FindDenial Denials
	// CallbackAllowed are the prefixes of URLs that PEPs may be called at;
	// none, and no callback is accepted.
	CallbackAllowed []string
	// SendCallback calls a PEP back. It is required where callbacks are allowed.
	SendCallback func(ctx context.Context, endpoint string, body []byte) error

	// OnError hears of a sweep or a callback that failed; the next one tries
	// again. It may be nil.
	OnError func(error)

	Now              func() time.Time // time.Now when nil
	NewID            func() string    // unguessable; crypto/rand.Text when nil
	BindingWindow    time.Duration    // how long a denial can be requested; 0 means 10 minutes
	MaxPending       int              // requests of a tenant; 0 means 10,000
	MaxPendingCaller int              // requests of one caller of a tenant; 0 means 1,000
	MaxKept          int64            // bytes of requests of a tenant, ended ones too; 0 means 256 MiB
	MaxKeptAll       int64            // bytes of requests of all tenants; 0 means 1 GiB
	RotateKeys       time.Duration    // after which a new key signs; 0 means 30 days
}

// Denials resolve an evaluation of a tenant to the denial that it was, nil for
// one that was not requestable. One that is not known is
// [authzen.ErrUnknownEvaluation].
type Denials func(ctx context.Context, tenant, evaluationID string) (*authzen.RequestableDenial, error)

// A Record is what the decision log keeps of a transition.
type Record struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"` // request or approval
	Time      time.Time      `json:"time"`
	Tenant    string         `json:"tenant,omitzero"`
	Caller    string         `json:"caller,omitzero"` // who acted: the PEP, or the approver's credential; "" where the service did
	RequestID string         `json:"request_id,omitzero"`
	Body      jsontext.Value `json:"body"`
}

// A Service keeps Access Requests. Its methods are safe for concurrent use.
type Service struct {
	config Config
	db     *bolt.DB

	mu      sync.Mutex // a transition and its record are one to everybody else
	behind  bool       // the outbox may hold records
	keys    keyRing
	changed chan struct{} // closed, and replaced, with every transition
	stopped chan struct{} // closed when Run has ended
}

// Open opens the service on a state directory that nobody else has open.
func Open(dir string, c Config) (*Service, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	if c.NewID == nil {
		c.NewID = rand.Text
	}
	c.BindingWindow = cmp.Or(c.BindingWindow, 10*time.Minute)
	c.MaxPending = cmp.Or(c.MaxPending, 10_000)
	c.MaxPendingCaller = cmp.Or(c.MaxPendingCaller, 1_000)
	c.MaxKept = cmp.Or(c.MaxKept, 256<<20)
	c.MaxKeptAll = cmp.Or(c.MaxKeptAll, 1<<30)
	c.RotateKeys = cmp.Or(c.RotateKeys, 30*24*time.Hour)
	db, err := openStore(filepath.Join(dir, FileName))
	if err != nil {
		return nil, fmt.Errorf("open approvals: %w", err)
	}
	s := &Service{config: c, db: db, behind: true, changed: make(chan struct{}), stopped: make(chan struct{})}
	if err := s.rotate(); err != nil {
		return nil, errors.Join(fmt.Errorf("open approvals: %w", err), db.Close())
	}
	return s, nil
}

// Close closes the service.
func (s *Service) Close() error { return s.db.Close() }

// JWKS returns the keys by which binding tokens and approvals are verified.
func (s *Service) JWKS() jose.JSONWebKeySet { return s.ring().jwks() }

// transact carries out a transition, with its record, and returns when both
// are durable. After an error of the log the transition stands, and nothing is
// told of anything until the record is in.
func (s *Service) transact(ctx context.Context, f func(txn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.recover(ctx); err != nil {
		return err
	}
	s.behind = true
	if err := update(s.db, f); err != nil {
		return err
	}
	return s.flush(ctx, s.config.Record)
}

// view reads. What it reads has its records in the log.
func (s *Service) view(ctx context.Context, f func(txn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.recover(ctx); err != nil {
		return err
	}
	return s.db.View(func(tx *bolt.Tx) error { return f(txn{tx}) })
}

// recover moves records into the log that an earlier attempt has left in the
// outbox. It may have got them into the log all the same.
func (s *Service) recover(ctx context.Context) error {
	if !s.behind {
		return nil
	}
	return s.flush(ctx, func(ctx context.Context, r Record) error {
		if s.config.Recorded != nil {
			if done, err := s.config.Recorded(ctx, r.ID); done || err != nil {
				return err
			}
		}
		return s.config.Record(ctx, r)
	})
}

// flush moves the records of the outbox into the log, and wakes whoever waits
// for what they tell of.
func (s *Service) flush(ctx context.Context, record func(context.Context, Record) error) error {
	var sent [][]byte
	err := s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketOutbox).ForEach(func(key, value []byte) error {
			var r Record
			if err := json.Unmarshal(value, &r); err != nil {
				return fmt.Errorf("read record: %w", err)
			}
			sent = append(sent, append([]byte{}, key...))
			return record(ctx, r)
		})
	})
	if err != nil {
		return fmt.Errorf("record transition: %w", err)
	}
	if s.behind = len(sent) > 0; !s.behind {
		return nil
	}
	close(s.changed)
	s.changed = make(chan struct{})
	if err := update(s.db, func(tx txn) error { return tx.recorded(sent) }); err != nil {
		return err
	}
	s.behind = false
	return nil
}

// ring returns the signing keys. A ring is never changed, only replaced.
func (s *Service) ring() keyRing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// now is the time, to the second, which is what is told of it.
func (s *Service) now() time.Time { return s.moment().Truncate(time.Second) }

// moment is the time as records have it.
func (s *Service) moment() time.Time { return s.config.Now().UTC() }
