package policystore

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

var (
	// ErrUnstable means that the store kept changing during the read.
	ErrUnstable = errors.New("the policy store keeps changing")

	// ErrEmpty means that the store has no relevant file, and no manifest that allows this.
	ErrEmpty = errors.New("the policy store is empty")

	// ErrManifest means that the files differ from the manifest, or that a required manifest is missing or
	// invalid.
	ErrManifest = errors.New("the files of the policy store differ from its manifest")

	// ErrUnsigned means that the manifest has no signature by Config.ManifestKey.
	ErrUnsigned = errors.New("the manifest of the policy store is not signed with the configured key")

	// ErrRollback means that the manifest's version is too low.
	ErrRollback = errors.New("the manifest of the policy store is older than what is in force")

	// ErrRetry is for the callback of [Store.Watch]. An error that wraps it is not caused by the content, and
	// Watch passes the content again at the next poll.
	ErrRetry = errors.New("the policy store cannot be applied now")

	// ErrInPart is for the callback of [Store.Watch]. An error that wraps it describes the part of the content
	// that is not active. The rest is active.
	ErrInPart = errors.New("a part of the policy store was not applied")

	// ErrStopped means that the store is no longer watched.
	ErrStopped = errors.New("the policy store is no longer watched")
)

// Config configures how a directory is read and watched. Its zero value works.
type Config struct {
	// RequireManifest makes a store without a manifest ErrManifest.
	RequireManifest bool
	// ManifestKey makes a store whose manifest has no signature by the key ErrUnsigned. The signature is in
	// manifest.json.sig, in base64, over the exact bytes of manifest.json. Without a key that file is
	// ignored.
	ManifestKey ed25519.PublicKey
	// MinVersion makes a manifest with a lower version ErrRollback. While a store is watched, the last
	// applied version is a minimum as well.
	MinVersion int64

	// Poll is the interval between checks without a hint. The default of 1.5 seconds lets an edit become
	// active within two seconds.
	Poll time.Duration
	// Failed is called, while the store is watched, when reading it starts to fail, and again when the error
	// changes.
	Failed func(error)
	// Log receives a message if file system events are unavailable. By default it is discarded.
	Log *slog.Logger
}

// A Store is a policy store in a directory. Its methods are safe for concurrent use.
type Store struct {
	dir     string
	config  Config
	reloads chan chan<- error
	ended   chan struct{}
	notify  func() (*fsnotify.Watcher, error)
	unread  atomic.Int64 // earliest possible unapplied change, in Unix nanoseconds; 0 for none
}

// A State is one state of a policy store.
type State struct {
	Archive  snapshot.Archive
	Manifest *Manifest // nil without one

	// TenantFaults lists the faults in tenants' folders: misplaced names and read errors. Each affects only
	// its tenant. The archive has no file of a tenant that cannot be read completely.
	TenantFaults faults.List

	digest  [sha256.Size]byte // of all of these
	listing *listing
}

// New returns the policy store in dir. It does not access the directory yet.
func New(dir string, c Config) *Store {
	if c.Poll == 0 {
		c.Poll = 1500 * time.Millisecond
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{
		dir:     dir,
		config:  c,
		reloads: make(chan chan<- error),
		ended:   make(chan struct{}),
		notify:  fsnotify.NewWatcher,
	}
}

// Pending returns the time since which the watched store may have an unapplied change, or the zero time.
// A change is unapplied until the callback of Watch returns. Pending does not block.
func (s *Store) Pending() time.Time {
	if since := s.unread.Load(); since != 0 {
		return time.Unix(0, since)
	}
	return time.Time{}
}
