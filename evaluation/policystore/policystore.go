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
	// ErrUnstable means that the store kept changing while it was read.
	ErrUnstable = errors.New("the policy store keeps changing")

	// ErrEmpty means that there is no file that counts, and no manifest that
	// allows it.
	ErrEmpty = errors.New("the policy store is empty")

	// ErrManifest means that the files are not those of the manifest, or that
	// there is no manifest that can be read although there has to be one.
	ErrManifest = errors.New("the policy store is not what its manifest says")

	// ErrUnsigned means that the manifest has no signature by Config.ManifestKey.
	ErrUnsigned = errors.New("the manifest of the policy store is not signed with the configured key")

	// ErrRollback means that the manifest's version is too low.
	ErrRollback = errors.New("the manifest of the policy store is older than what is in force")

	// ErrRetry is for the function that [Store.Watch] calls: an error that wraps
	// it is not the content's fault, and the content is handed over again with
	// the next poll.
	ErrRetry = errors.New("the policy store could not be applied for now")

	// ErrInPart is for the function that [Store.Watch] calls: an error that wraps it
	// says what keeps a part of the content from coming into force. The rest is.
	ErrInPart = errors.New("the policy store is in force in part")

	// ErrStopped means that the store is no longer watched.
	ErrStopped = errors.New("the policy store is no longer watched")
)

// Config says on what terms a directory is read and how it is watched. Its zero
// value works.
type Config struct {
	// RequireManifest makes a store without a manifest ErrManifest.
	RequireManifest bool
	// ManifestKey makes a store whose manifest it has not signed ErrUnsigned.
	// The signature is in manifest.json.sig, in base64, and is one of the exact
	// bytes of manifest.json. Without a key that file is not looked at.
	ManifestKey ed25519.PublicKey
	// MinVersion makes a manifest of a lower version ErrRollback. While a store
	// is watched, the version last applied does as well.
	MinVersion int64

	// Poll is the time between looks that nothing has hinted at. The default of
	// 1.5 seconds leaves time for the rest where an edit has to be in force
	// within two.
	Poll time.Duration
	// Failed is called, while the store is watched, with the error of reading it
	// when that begins to fail, and again when it fails for another reason.
	Failed func(error)
	// Log is told when the file system reports no changes. The default discards.
	Log *slog.Logger
}

// A Store is a policy store in a directory. Its methods may be called
// concurrently.
type Store struct {
	dir     string
	config  Config
	reloads chan chan<- error
	ended   chan struct{}
	notify  func() (*fsnotify.Watcher, error)
	unread  atomic.Int64 // since when there may be a change, in Unix nanoseconds; 0 for none
}

// A State is one state of a policy store.
type State struct {
	Archive  snapshot.Archive
	Manifest *Manifest // nil when there is none

	// TenantFaults are what is wrong in the folders of tenants: names that look as
	// if they counted, and what cannot be read. They are those tenants' and nobody
	// else's. Of a tenant that cannot be read whole, no file is in the archive.
	TenantFaults faults.List

	digest  [sha256.Size]byte // of all of these
	listing *listing
}

// New returns the policy store in dir. It does not look at it yet.
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

// Pending says since when, while the store is watched, there may be a change
// that has not been handed over, or that the function it was handed to has not
// returned from; the zero time for none. It does not wait for either.
func (s *Store) Pending() time.Time {
	if since := s.unread.Load(); since != 0 {
		return time.Unix(0, since)
	}
	return time.Time{}
}
