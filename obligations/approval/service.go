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

// FileName is the name of the file, in the state directory, with the requests.
const FileName = "approvals.db"

// Config connects the service with others. BaseURL, Template, CanApprove and Record are required.
type Config struct {
	// BaseURL is the URL of the service for PEPs. The URLs of tenants are below it.
	BaseURL string
	// Template returns the current terms of a template.
	Template func(tenant, name string) (authzen.ApprovalTemplate, error)
	// CanApprove decides whether an approver may decide a request.
	CanApprove func(context.Context, Check) (bool, error)
	// Record records a transition and returns when the record is durable.
	Record func(context.Context, Record) error
	// Recorded reports whether the log has a record whose outcome was unknown. If it is nil, such a
	// record is recorded again with the same id.
	Recorded func(ctx context.Context, id string) (bool, error)
	// FindDenial resolves a denial that a submission names by its Decision-ID only. If it is nil,
	// such a submission is refused.
	FindDenial Denials
	// CallbackAllowed lists prefixes of allowed callback URLs. If it is empty, no callback is
	// accepted.
	CallbackAllowed []string
	// SendCallback posts a callback to a PEP. It is required if CallbackAllowed is set.
	SendCallback func(ctx context.Context, endpoint string, body []byte) error

	// OnError receives the error of a sweep or callback, which is retried. It may be nil.
	OnError func(error)

	Now              func() time.Time // nil means time.Now
	NewID            func() string    // unguessable; nil means crypto/rand.Text
	BindingWindow    time.Duration    // how long a denial can be submitted; 0 means 10 minutes
	MaxPending       int              // pending requests of a tenant; 0 means 10,000
	MaxPendingCaller int              // pending requests of one caller of a tenant; 0 means 1,000
	MaxKept          int64            // bytes of stored requests of a tenant; 0 means 256 MiB
	MaxKeptAll       int64            // bytes of stored requests of all tenants; 0 means 1 GiB
	RotateKeys       time.Duration    // age at which a new key replaces the signing key; 0 means 30 days
}

// Denials resolves a Decision-ID of a tenant to its denial, or to nil if the denial was not
// requestable. The error is [authzen.ErrUnknownEvaluation] for an unknown id.
type Denials func(ctx context.Context, tenant, evaluationID string) (*authzen.RequestableDenial, error)

// A Record is the log entry of a transition.
type Record struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"` // request or approval
	Time      time.Time      `json:"time"`
	Tenant    string         `json:"tenant,omitzero"`
	Caller    string         `json:"caller,omitzero"` // the PEP or the approver's credential; "" for the service itself
	RequestID string         `json:"request_id,omitzero"`
	Body      jsontext.Value `json:"body"`
}

// A Service stores Access Requests. Its methods are safe for concurrent use.
type Service struct {
	config Config
	db     *bolt.DB

	mu      sync.Mutex // makes a transition and its record atomic for others
	behind  bool       // the outbox may hold records
	keys    keyRing
	changed chan struct{} // closed and replaced at every transition
	stopped chan struct{} // closed when Run has ended
}

// Open opens the service in a state directory, exclusively.
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

// JWKS returns the keys that verify binding tokens and approvals.
func (s *Service) JWKS() jose.JSONWebKeySet { return s.ring().jwks() }

// transact commits a transition with its record and returns when both are durable. If the log
// fails, the transition remains, and no method returns data until the record is in the log.
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

// view reads data whose records are all in the log.
func (s *Service) view(ctx context.Context, f func(txn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.recover(ctx); err != nil {
		return err
	}
	return s.db.View(func(tx *bolt.Tx) error { return f(txn{tx}) })
}

// recover moves records that an earlier attempt left in the outbox into the log. It checks first
// whether the log has them already.
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

// flush moves the records of the outbox into the log. Then it wakes waiting calls.
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

// ring returns the signing keys. A ring is replaced and never modified.
func (s *Service) ring() keyRing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// now returns the time, truncated to seconds as in answers.
func (s *Service) now() time.Time { return s.moment().Truncate(time.Second) }

// moment returns the time as in records.
func (s *Service) moment() time.Time { return s.config.Now().UTC() }
