package policystore

import (
	"errors"
	"io/fs"

	"github.com/fsnotify/fsnotify"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// TenantFaults lists what a listing tells of tenants.
func TenantFaults(fsys fs.FS) faults.List { return list(fsys).tenantFaults() }

// Blind makes the file system report nothing to s.
func (s *Store) Blind(why error) {
	s.notify = func() (*fsnotify.Watcher, error) { return nil, why }
}

// Tap tells the watcher by which the file system reports to s.
func (s *Store) Tap() <-chan *fsnotify.Watcher {
	tapped := make(chan *fsnotify.Watcher, 1)
	s.notify = func() (*fsnotify.Watcher, error) {
		w, err := fsnotify.NewWatcher()
		tapped <- w
		return w, err
	}
	return tapped
}

// The times of a watch.
const (
	Quiet       = quiet
	MaxDelay    = maxDelay
	Granularity = granularity
	Rereads     = rereads
)

// A Delay is a delay.
type Delay struct{ *delay }

func NewDelay() Delay      { return Delay{newDelay()} }
func (d Delay) Hint()      { d.hint() }
func (d Delay) Over() bool { return d.over() }
func (d Delay) Done()      { d.done() }

// Load reads the policy store in dir, which may be empty.
func Load(dir string) (snapshot.Archive, error) {
	state, err := New(dir, Config{}).read()
	if state != nil {
		err = state.asError(err)
	}
	if err != nil && !errors.Is(err, ErrEmpty) {
		return nil, err
	}
	return state.Archive, nil
}
