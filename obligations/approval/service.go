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
	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/outbox"
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
	// WouldApprove answers like CanApprove and records nothing. It is required for [Service.Allowed] and
	// for delegations.
	WouldApprove func(context.Context, Check) (bool, error)
	// NamesOf returns further names of people by some of their names. If it is nil, there are none.
	NamesOf func(names []string) []string
	// Revision returns the revision of the policies that decide for a tenant. It is required for lists
	// for a person.
	Revision func(tenant string) string
	// Record records a transition and returns when the record is durable.
	Record func(context.Context, Record) error
	// Recorded reports whether the log has a record whose outcome was unknown. If it is nil, such a
	// record is recorded again with the same id.
	Recorded func(ctx context.Context, id string) (bool, error)
	// FindDenial resolves a denial that a submission names by its Decision-ID only. If it is nil,
	// such a submission is refused.
	FindDenial Denials
	// Mask masks values that look like secrets in JSON. Equal values have equal masks. If it is nil,
	// sheets have the values themselves.
	Mask func(jsontext.Value) (jsontext.Value, error)
	// CheckArguments checks arguments that an approver has changed against a JSON Schema. The path, a
	// JSON Pointer, says where the fault is. If it is nil, arguments with a schema cannot be changed.
	CheckArguments func(schema, arguments jsontext.Value) (path string, err error)
	// CallbackAllowed lists prefixes of allowed callback URLs. If it is empty, no callback is
	// accepted.
	CallbackAllowed []string
	// SendCallback posts a callback to a PEP. It is required if CallbackAllowed is set.
	SendCallback func(ctx context.Context, endpoint string, body []byte) error

	// Recipients returns who may decide on an item, and how they are notified. If it is nil, nobody is.
	// A person of the result may be named twice.
	Recipients func(context.Context, Audience) ([]Recipient, error)
	// Deliver sends a message. It is required if Recipients is set.
	Deliver func(context.Context, Delivery) error
	// DigestAfter is how many messages a recipient gets in a minute. The last of them is a digest of
	// those that are left. 0 means 5.
	DigestAfter int

	// OnError receives the error of a sweep, callback or message, which is retried. It may be nil.
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
type Record = outbox.Record

// A Service stores Access Requests. Its methods are safe for concurrent use.
type Service struct {
	config  Config
	db      *bolt.DB
	outbox  *outbox.Outbox
	pace    *pace
	stopped chan struct{} // closed when Run has ended
	allowed *allowedCache

	mu   sync.Mutex // guards keys
	keys keyRing
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
	s := &Service{config: c, db: db, pace: newPace(cmp.Or(c.DigestAfter, digestAfter)), stopped: make(chan struct{}), allowed: newAllowedCache()}
	s.outbox = outbox.New(db, outbox.Config{
		Record: c.Record, Recorded: c.Recorded,
		Update: func(f func(*bolt.Tx) error) error { return update(db, func(tx txn) error { return f(tx.Tx) }) },
	})
	if err := s.rotate(); err != nil {
		return nil, errors.Join(fmt.Errorf("open approvals: %w", err), db.Close())
	}
	return s, nil
}

// Close closes the service.
func (s *Service) Close() error { return s.db.Close() }

// JWKS returns the keys that verify binding tokens and approvals.
func (s *Service) JWKS() jose.JSONWebKeySet { return s.ring().jwks() }

// transact commits a transition with its record; see [outbox.Outbox.Transact].
func (s *Service) transact(ctx context.Context, f func(txn) error) error {
	return s.outbox.Transact(ctx, func(tx *bolt.Tx) error { return f(txn{tx}) })
}

// view reads data whose records are all in the log.
func (s *Service) view(ctx context.Context, f func(txn) error) error {
	return s.outbox.View(ctx, func(tx *bolt.Tx) error { return f(txn{tx}) })
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
