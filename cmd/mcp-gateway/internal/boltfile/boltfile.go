// Package boltfile shares a bbolt database between processes.
//
// bbolt locks a database while it is open. A [File] therefore opens the database
// for each transaction and closes it afterwards: readers of several processes run
// together, a writer runs alone. A transaction must be short. One that waits
// longer than ten seconds for the lock fails with a [LockedError].
package boltfile

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// maxWait is how long a transaction waits for other processes.
const maxWait = 10 * time.Second

// A LockedError means that another process has a database for too long.
type LockedError struct {
	Path string
	PID  int // of the process, or 0 where the system does not say
	Wait time.Duration
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s: %s has locked the file for %s: end that process, or use another state directory", e.Path, holder, e.Wait)
}

// A File is a database that several processes use. It is safe for concurrent use.
type File struct {
	path string
	wait time.Duration
	mu   sync.RWMutex // of this process, so that its transactions do not wait for the lock of the file
}

// Open makes the database, if there is none, with these buckets.
func Open(path string, buckets ...[]byte) (*File, error) {
	f := &File{path: path, wait: maxWait}
	return f, f.Update(func(tx *bbolt.Tx) error {
		for _, bucket := range buckets {
			if _, err := tx.CreateBucketIfNotExists(bucket); err != nil {
				return err
			}
		}
		return nil
	})
}

// Path returns the path of the database.
func (f *File) Path() string { return f.path }

// View runs a read-only transaction.
func (f *File) View(do func(*bbolt.Tx) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.transact(true, func(db *bbolt.DB) error { return db.View(do) })
}

// Update runs a transaction that is on disk when Update returns nil.
func (f *File) Update(do func(*bbolt.Tx) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.transact(false, func(db *bbolt.DB) error { return db.Update(do) })
}

func (f *File) transact(readOnly bool, do func(*bbolt.DB) error) error {
	db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{Timeout: f.wait, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, berrors.ErrTimeout) {
		return &LockedError{f.path, holder(f.path), f.wait}
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", f.path, err)
	}
	return errors.Join(do(db), db.Close())
}

// A Version tells two states of a database apart without a transaction.
type Version struct {
	written time.Time
	size    int64
}

// granularity bounds how far apart in time two writes may be and yet have the
// same time in the file system.
const granularity = time.Second

// Version returns the state of the database, and whether it is settled: a later
// write has another Version.
func (f *File) Version() (v Version, settled bool, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return Version{}, false, err
	}
	return Version{info.ModTime(), info.Size()}, time.Since(info.ModTime()) > granularity, nil
}
