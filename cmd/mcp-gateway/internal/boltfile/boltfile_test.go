package boltfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/boltfile"
)

var bucket = []byte("b")

// Several Files of one database, as several processes have, lose no update.
func TestShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	var all sync.WaitGroup
	for range 4 {
		f, err := boltfile.Open(path, bucket)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			all.Go(func() {
				err := f.Update(func(tx *bbolt.Tx) error {
					n := append(tx.Bucket(bucket).Get([]byte("n")), 'x')
					return tx.Bucket(bucket).Put([]byte("n"), n)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	f, err := boltfile.Open(path, bucket)
	if err != nil {
		t.Fatal(err)
	}
	err = f.View(func(tx *bbolt.Tx) error {
		if n := len(tx.Bucket(bucket).Get([]byte("n"))); n != 40 {
			t.Errorf("40 updates have left %d", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The error of a database that is locked names the file and the process.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	f, err := boltfile.Open(path, bucket)
	if err != nil {
		t.Fatal(err)
	}
	f.SetWait(time.Millisecond)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var locked *boltfile.LockedError
	err = f.View(func(*bbolt.Tx) error { return nil })
	if !errors.As(err, &locked) || locked.Path != path {
		t.Fatalf("a locked database: %v", err)
	}
	if runtime.GOOS == "linux" && locked.PID != os.Getpid() {
		t.Errorf("the process is %d, not %d", locked.PID, os.Getpid())
	}
}
