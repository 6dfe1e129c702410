// Package filereload reads credentials and certificates again when their files
// change, because operators and their tools rotate them.
//
// The last valid content stays in use while the new one cannot be read: a file that
// is being replaced does not end a service.
package filereload

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookInterval is how long the state of the files is cached.
const lookInterval = time.Second

// A Value is what some files contain. It is safe for concurrent use.
type Value[T any] struct {
	name  string
	files []string
	read  func() (T, error)
	cfg   Config

	mu      sync.Mutex
	current T
	seen    []state // of the files when current was read
	looked  time.Time
}

// A Config has the surroundings of a Value. Its zero value works.
type Config struct {
	Log *slog.Logger     // nil is none
	Now func() time.Time // nil is time.Now
}

// A state tells two contents of a file apart.
type state struct {
	written time.Time
	size    int64
}

// New reads the value of the files with read. Name is for the log.
func New[T any](name string, read func() (T, error), cfg Config, files ...string) (*Value[T], error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	v := &Value[T]{name: name, files: files, read: read, cfg: cfg, looked: cfg.Now()}
	seen, err := v.states()
	if err != nil {
		return nil, err
	}
	v.seen = seen
	if v.current, err = read(); err != nil {
		return nil, err
	}
	return v, nil
}

// Get returns the latest valid value. It looks at the files at most once a second.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.cfg.Now(); now.Sub(v.looked) >= lookInterval {
		v.looked = now
		v.look()
	}
	return v.current
}

// look reads the value again if a file has changed.
func (v *Value[T]) look() {
	seen, err := v.states()
	if err == nil && equal(seen, v.seen) {
		return
	}
	if err == nil {
		var current T
		if current, err = v.read(); err == nil {
			v.current, v.seen = current, seen
			v.cfg.Log.Info(v.name + " read again, because its file has changed")
			return
		}
	}
	v.cfg.Log.Warn(v.name+" not read, the last one is still used", "error", err)
}

func (v *Value[T]) states() ([]state, error) {
	var all []state
	for _, file := range v.files {
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		all = append(all, state{info.ModTime(), info.Size()})
	}
	return all, nil
}

func equal(a, b []state) bool {
	for i := range a {
		if !a[i].written.Equal(b[i].written) || a[i].size != b[i].size {
			return false
		}
	}
	return true
}
