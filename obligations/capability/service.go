package capability

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/outbox"
)

// FileName is the name of the file, in the state directory, with the capabilities.
const FileName = "capabilities.db"

// Config connects the service with others. Record is required. A service that answers requests needs
// UsesSince, too.
type Config struct {
	// Record records a transition and returns when the record is durable.
	Record func(context.Context, Record) error
	// Recorded reports whether the log has a record whose outcome was unknown. If it is nil, such a
	// record is recorded again with the same id.
	Recorded func(ctx context.Context, id string) (bool, error)
	// UsesSince yields the decisions in the log that spent or repeated a use, or took a proof, from an
	// index on, in the order of the log. Open calls it before any other function of the Config. If it is
	// nil, a start forgets all uses and proofs.
	UsesSince func(ctx context.Context, from uint64, yield func(Use) error) error
	// LogSize returns the number of entries in the log: the index of the next one. With it, no entry is
	// read twice. It may be nil.
	LogSize func() uint64
	// NotBefore is the time of the last log entry. The service takes no earlier one for the present.
	NotBefore time.Time

	// SignToken signs claims as a token of a type, and VerifyToken decodes those of a token of that type
	// that it has signed. Without them there are no tokens.
	SignToken   func(typ string, claims any) (string, error)
	VerifyToken func(typ, token string, claims any) error
	// BaseURL returns the base URL of a tenant, or of the service for "". Tokens need it.
	BaseURL func(tenant string) string

	// OnError receives the error of a sweep, which is retried. It may be nil.
	OnError func(error)

	Now          func() time.Time // nil means time.Now
	NewID        func() string    // nil means crypto/rand.Text
	MaxProofs    int              // proofs that can no longer be taken; 0 means 1,000,000
	MaxProofsOf  int              // the same of one holder; 0 means 5,000
	MaxActive    int              // active capabilities of a holder; 0 means 100
	MaxPending   int              // pending capabilities of a holder; 0 means 20
	MaxTenant    int              // active and pending capabilities of a tenant; 0 means 10,000
	MaxStored    int64            // bytes of stored capabilities of a tenant; 0 means 64 MiB
	MaxStoredAll int64            // bytes of stored capabilities of all tenants; 0 means 256 MiB
}

// A Service stores capabilities. Its methods are safe for concurrent use.
type Service struct {
	config Config
	db     *bolt.DB
	outbox *outbox.Outbox
	index  *index
	staged []staged // changes of the index whose records are not in the log yet; the outbox guards it
	clock  clock

	log     logReader
	proofs  takenProofs
	started bool // Open has read the uses in the log

	spentMu sync.Mutex
	spent   map[string]bool // capabilities without a use left that have not ended yet

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
	c.MaxProofs = cmp.Or(c.MaxProofs, 1_000_000)
	c.MaxProofsOf = cmp.Or(c.MaxProofsOf, 5_000)
	c.MaxActive = cmp.Or(c.MaxActive, 100)
	c.MaxPending = cmp.Or(c.MaxPending, 20)
	c.MaxTenant = cmp.Or(c.MaxTenant, 10_000)
	c.MaxStored = cmp.Or(c.MaxStored, 64<<20)
	c.MaxStoredAll = cmp.Or(c.MaxStoredAll, 256<<20)
	db, err := openStore(filepath.Join(dir, FileName))
	if err != nil {
		return nil, fmt.Errorf("open capabilities: %w", err)
	}
	s := &Service{
		config: c, db: db, index: newIndex(), spent: map[string]bool{}, stopped: make(chan struct{}),
		log:    logReader{counts: map[string]*uses{}, changed: map[string]bool{}},
		proofs: takenProofs{maxAll: c.MaxProofs, maxHolder: c.MaxProofsOf},
	}
	s.outbox = outbox.New(db, outbox.Config{Record: c.Record, Recorded: c.Recorded, Logged: s.logged})
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open capabilities: %w", err), db.Close())
	}
	return s, nil
}

// load reads the capabilities, their uses and their proofs.
func (s *Service) load() error {
	s.clock.observe(s.config.NotBefore)
	s.moment()
	err := s.db.View(func(tx *bolt.Tx) error {
		at, err := s.log.load(tx)
		if err != nil {
			return err
		}
		s.clock.observe(at)
		return s.loadIndex(tx)
	})
	if err != nil {
		return err
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if err := s.readUses(context.Background()); err != nil {
		return err
	}
	for _, e := range s.index.limited() {
		e.uses.set(s.log.of(e.ID))
		if e.State == Active && e.uses.used() >= e.Constraints.MaxUses {
			s.spent[e.ID] = true
		}
	}
	s.started = true
	return s.storeUses() // the index, too, if the log lost its end
}

// Close stores the uses and closes the service. It reads the log a last time. If that fails, the next
// start reads more of it.
func (s *Service) Close() error {
	if err := s.snapshot(context.Background()); err != nil {
		s.config.OnError(err)
	}
	return s.db.Close()
}

// transact commits a transition with its record; see [outbox.Outbox.Transact]. In f, the index has the
// state before the transaction.
func (s *Service) transact(ctx context.Context, f func(txn) error) error {
	return s.outbox.Transact(ctx, func(tx *bolt.Tx) error { return f(txn{tx, s}) })
}

// A staged change of the index follows a committed transaction.
type staged struct {
	id    string
	entry *entry // nil to delete it
}

// logged updates the index, because the records of all committed transactions are in the log.
func (s *Service) logged() {
	for _, change := range s.staged {
		s.index.put(change.id, change.entry)
	}
	s.staged = nil
}

// now returns the time, truncated to seconds as in answers.
func (s *Service) now() time.Time { return s.moment().Truncate(time.Second) }

// moment returns the time as in records.
func (s *Service) moment() time.Time { return s.clock.observe(s.config.Now()) }
