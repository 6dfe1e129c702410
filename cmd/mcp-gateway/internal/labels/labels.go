// Package labels keeps the labels of callers: what the results that a caller got
// were, such as untrusted.
//
// The law it keeps: a label is on disk before the result that it is about reaches
// the caller, and it stays for the configured time after the last such result. It
// belongs to the verified caller and the tenant. Neither a new session nor a restart
// nor another process with the same file removes it. A label that cannot be kept is
// an error, and the result is withheld.
//
// On disk (bbolt):
//
//	callers  TENANT TYPE ID of the caller, quoted → its labels, as JSON
package labels

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/boltfile"
)

// ErrFull means that a caller has too many labels, or that too many callers have
// labels.
var ErrFull = errors.New("there is no place for more labels")

// A Config configures a [Store].
type Config struct {
	File string        // that several processes may use
	TTL  time.Duration // how long a label stays
	// Sessions narrows labels to the session in which they came, where there is one.
	Sessions bool
	// PerCaller and Callers are the maximum numbers of labels of a caller, in however
	// many sessions, and of callers with labels. 0 is 64 and 100,000.
	PerCaller, Callers int
	Now                func() time.Time // nil is time.Now
}

// A Caller is who has labels.
type Caller struct {
	Tenant, Type, ID string
	Session          string // "" where there is none, or where it is not known
}

func (c Caller) key() []byte {
	return []byte(strconv.Quote(c.Tenant) + strconv.Quote(c.Type) + strconv.Quote(c.ID))
}

// A label is one of a caller.
type label struct {
	Name    string    `json:"name"`
	Session string    `json:"session,omitzero"` // to which it is narrowed
	Until   time.Time `json:"until"`
}

// A Store keeps labels. It is safe for concurrent use.
type Store struct {
	cfg Config
	db  *boltfile.File

	mu      sync.Mutex
	version boltfile.Version
	known   map[string][]label // of callers, as of version

	swept time.Time // for transactions that write, of which there is one at a time
}

var bucketCallers = []byte("callers")

// sweepInterval is how often callers whose labels have ended are removed, and there
// is a new caller.
const sweepInterval = time.Hour

// Open opens the store, or creates it.
func Open(cfg Config) (*Store, error) {
	if cfg.PerCaller == 0 {
		cfg.PerCaller = 64
	}
	if cfg.Callers == 0 {
		cfg.Callers = 100_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	db, err := boltfile.Open(cfg.File, bucketCallers)
	if err != nil {
		return nil, fmt.Errorf("open labels: %w", err)
	}
	return &Store{cfg: cfg, db: db}, nil
}

// Of returns the labels of a caller, sorted and without duplicates. It is never nil.
func (s *Store) Of(c Caller) ([]string, error) {
	all, err := s.read(string(c.key()))
	if err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	names, now := []string{}, s.cfg.Now()
	for _, l := range all {
		if now.Before(l.Until) && s.applies(l, c.Session) {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// applies reports whether a label counts in a session. One that came outside of a
// session counts everywhere, and where the session is not known, all count.
func (s *Store) applies(l label, session string) bool {
	return !s.cfg.Sessions || l.Session == "" || session == "" || l.Session == session
}

// read returns what is stored of a caller. It spares a transaction while no process
// writes.
func (s *Store) read(key string) (all []label, err error) {
	version, settled, err := s.db.Version()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if settled && version == s.version {
		if all, ok := s.known[key]; ok {
			return all, nil
		}
	} else {
		s.known = nil
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		all, err = get(tx, []byte(key))
		return err
	})
	if err == nil && settled {
		if s.known == nil || len(s.known) >= s.cfg.Callers { // which may have no labels
			s.version, s.known = version, make(map[string][]label)
		}
		s.known[key] = all
	}
	return all, err
}

func get(tx *bbolt.Tx, key []byte) (all []label, err error) {
	value := tx.Bucket(bucketCallers).Get(key)
	if value == nil {
		return nil, nil
	}
	return all, json.Unmarshal(value, &all)
}

// Add gives a caller labels. They are on disk when Add returns nil.
func (s *Store) Add(c Caller, names []string) error {
	if !s.cfg.Sessions {
		c.Session = ""
	}
	now := s.cfg.Now()
	all, err := s.read(string(c.key()))
	if err == nil && !slices.ContainsFunc(names, func(name string) bool { return !lasts(all, name, c.Session, now.Add(s.cfg.TTL)) }) {
		return nil
	}
	err = s.db.Update(func(tx *bbolt.Tx) error { return s.add(tx, c, names, now) })
	if err != nil {
		return fmt.Errorf("store labels: %w", err)
	}
	return nil
}

// margin is how much longer than its time a label is stored, as a part of that time.
// Within the margin another result with the label writes nothing.
const margin = 24

// lasts reports whether a label is stored for a session at least until a time.
func lasts(all []label, name, session string, until time.Time) bool {
	return slices.ContainsFunc(all, func(l label) bool {
		return l.Name == name && (l.Session == session || l.Session == "") && !l.Until.Before(until)
	})
}

// maxNarrowed bounds the labels of a caller, each counted in each of its sessions.
const maxNarrowed = 512

// widen makes each label count in all sessions: a caller with so many sessions could
// have no further label otherwise.
func widen(all []label) (wide []label) {
	for _, l := range all {
		l.Session = ""
		if n := slices.IndexFunc(wide, func(other label) bool { return other.Name == l.Name }); n < 0 {
			wide = append(wide, l)
		} else if l.Until.After(wide[n].Until) {
			wide[n] = l
		}
	}
	return wide
}

func (s *Store) add(tx *bbolt.Tx, c Caller, names []string, now time.Time) error {
	all, err := get(tx, c.key())
	if err != nil {
		return err
	}
	callers := tx.Bucket(bucketCallers)
	if all == nil {
		if err := s.makePlace(callers, now); err != nil {
			return err
		}
	}
	all = slices.DeleteFunc(all, func(l label) bool {
		return !now.Before(l.Until) || l.Session == c.Session && slices.Contains(names, l.Name)
	})
	until := now.Add(s.cfg.TTL + s.cfg.TTL/margin)
	for _, name := range names {
		if !lasts(all, name, c.Session, until) {
			all = append(all, label{name, c.Session, until})
		}
	}
	if len(all) > maxNarrowed {
		all = widen(all)
	}
	if len(widen(all)) > s.cfg.PerCaller {
		return ErrFull
	}
	value, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return callers.Put(c.key(), value)
}

// makePlace makes sure that there is a place for another caller.
func (s *Store) makePlace(callers *bbolt.Bucket, now time.Time) error {
	count := 0
	err := callers.ForEach(func([]byte, []byte) error {
		count++
		return nil
	})
	due := now.Sub(s.swept) >= sweepInterval
	if due {
		s.swept = now
	}
	if err == nil && (due || count >= s.cfg.Callers) {
		count, err = sweep(callers, now)
	}
	if err == nil && count >= s.cfg.Callers {
		return ErrFull
	}
	return err
}

// sweep removes callers whose labels have ended, and returns the number of the
// others.
func sweep(callers *bbolt.Bucket, now time.Time) (left int, err error) {
	var over [][]byte
	err = callers.ForEach(func(key, value []byte) error {
		var all []label
		if err := json.Unmarshal(value, &all); err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(l label) bool { return now.Before(l.Until) }) {
			left++
		} else {
			over = append(over, key)
		}
		return nil
	})
	for _, key := range over {
		err = errors.Join(err, callers.Delete(key))
	}
	return left, err
}
