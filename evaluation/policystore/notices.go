package policystore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// notices receives file system events for a store's directories and for those on the path to it. Each
// event that concerns the store is a hint.
type notices struct {
	hints chan struct{} // capacity 1: further hints add nothing

	open    func() (*fsnotify.Watcher, error)
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil if none is available
	watched map[string]fs.FileInfo
	trouble string // last error in the log
	drained sync.WaitGroup
	store   atomic.Pointer[whereabouts]
}

// whereabouts distinguishes events in a store from events around it.
type whereabouts struct {
	dir   string
	names []string    // paths by which events may name the directory
	place fs.FileInfo // of the directory; nil if it does not exist
}

func newNotices(open func() (*fsnotify.Watcher, error), log *slog.Logger) *notices {
	return &notices{hints: make(chan struct{}, 1), open: open, log: log, watched: map[string]fs.FileInfo{}}
}

func (n *notices) close() {
	if n.watcher != nil {
		_ = n.watcher.Close()
	}
	n.drained.Wait()
}

// drain receives every event at once. A watcher that is blocked on an event cannot be changed.
func (n *notices) drain(events <-chan fsnotify.Event, errs <-chan error) {
	for {
		select {
		case event, open := <-events:
			if !open {
				return
			}
			if n.store.Load().concerns(event.Name) {
				n.hint()
			}
		case _, open := <-errs:
			if !open {
				return
			}
			n.hint()
		}
	}
}

func (n *notices) hint() {
	select {
	case n.hints <- struct{}{}:
	default:
	}
}

// concerns reports whether an event at path may affect the store. Files next to the store, or above it,
// may change all the time.
func (w *whereabouts) concerns(path string) bool {
	inside := func(name string) bool {
		return path == name || strings.HasPrefix(path, name+string(os.PathSeparator))
	}
	if w.place == nil || slices.ContainsFunc(w.names, inside) {
		return true
	}
	info, err := os.Stat(w.dir)
	return err != nil || !os.SameFile(info, w.place)
}

// follow watches the path to dir and exactly the given directories below it, which are slash-separated
// paths. It reports whether any of them is newly watched.
func (n *notices) follow(dir string, dirs []string) (added bool) {
	wanted, err := n.wanted(dir, dirs)
	if err == nil {
		err = n.start()
	}
	if err == nil {
		added, err = n.update(wanted)
	}
	n.report(err)
	return added
}

func (n *notices) start() error {
	if n.watcher != nil {
		return nil
	}
	watcher, err := n.open()
	if err != nil {
		return err
	}
	n.watcher = watcher
	n.drained.Go(func() { n.drain(watcher.Events, watcher.Errors) })
	return nil
}

// wanted returns the directories to watch. Each has one path, because a watcher supports only one.
func (n *notices) wanted(dir string, dirs []string) (map[string]fs.FileInfo, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	wanted := map[string]fs.FileInfo{}
	add := func(path string) string {
		resolved, err := filepath.EvalSymlinks(path)
		if err != nil {
			return path
		}
		if info, err := os.Stat(resolved); err == nil {
			wanted[resolved] = info
		}
		return resolved
	}
	for _, d := range approach(path) {
		add(d)
	}
	for _, d := range dirs {
		add(filepath.Join(path, filepath.FromSlash(d)))
	}
	outside := filepath.Join(add(filepath.Dir(path)), filepath.Base(path))
	resolved := add(path)
	n.store.Store(&whereabouts{dir: path, names: []string{outside, resolved}, place: wanted[resolved]})
	return wanted, nil
}

// update watches exactly the wanted directories. It watches a path again if a different directory is
// there now, or if the watcher lost it while the directory was missing.
func (n *notices) update(wanted map[string]fs.FileInfo) (added bool, err error) {
	kept := map[string]bool{}
	for _, path := range n.watcher.WatchList() {
		kept[path] = true
	}
	for path, info := range n.watched {
		now, found := wanted[path]
		if found && kept[path] && os.SameFile(info, now) {
			continue
		}
		if kept[path] {
			_ = n.watcher.Remove(path)
		}
		delete(n.watched, path)
	}
	var errs []error
	for path, info := range wanted {
		if n.watched[path] != nil {
			continue
		}
		err := n.watcher.Add(path)
		switch {
		case err == nil:
			n.watched[path], added = info, true
		case !errors.Is(err, fs.ErrNotExist): // it may have been removed in the meantime
			errs = append(errs, fmt.Errorf("watch %s: %w", path, err))
		}
	}
	return added, errors.Join(errs...)
}

// report logs an error once.
func (n *notices) report(err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	if trouble != "" && trouble != n.trouble {
		n.log.Warn("the file system does not report changes of the policy store, it is polled", "error", err)
	}
	n.trouble = trouble
}

// approach returns the directories in which the path can change: its parent and those of all symbolic
// links on the way.
func approach(path string) []string {
	dirs := []string{filepath.Dir(path)}
	passed := map[string]bool{}
	var pass func(string)
	pass = func(path string) {
		for ; path != filepath.Dir(path) && !passed[path]; path = filepath.Dir(path) {
			passed[path] = true
			target, err := os.Readlink(path)
			if err != nil {
				continue
			}
			dirs = append(dirs, filepath.Dir(path))
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path), target)
			}
			pass(target)
		}
	}
	pass(path)
	return dirs
}
