package policystore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

// However fast a symbolic link is swapped, and however slowly what it led to is
// deleted, what is read is what was there at one time.
func TestSwapsAreAtomic(t *testing.T) {
	for name, dir := range map[string]string{"in the store": "", "to the store": "..data"} {
		t.Run(name, func(t *testing.T) {
			base := newStore(t, nil)
			swap(t, base, 0)
			for _, file := range []string{"a.cedar", "b.cedar"} {
				must(t, os.Symlink("..data/"+file, filepath.Join(base, file)))
			}
			reads, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for version := 1; version <= 500; version++ {
					swap(t, base, version)
					old := filepath.Join(base, fmt.Sprintf("..2026_%d", version-1))
					<-reads
					<-reads // which has begun after the swap
					_ = os.RemoveAll(old)
				}
			}()
			readWhile(t, filepath.Join(base, dir), reads, done)
		})
	}
}

// swap makes ..data of base lead to two files that belong together, and begins
// to delete those it led to before.
func swap(t *testing.T, base string, version int) {
	name := fmt.Sprintf("..2026_%d", version)
	fill(t, filepath.Join(base, name), texts{"a.cedar": policy(version), "b.cedar": policy(version)})
	_ = os.Symlink(name, filepath.Join(base, "..data_tmp"))
	_ = os.Rename(filepath.Join(base, "..data_tmp"), filepath.Join(base, "..data"))
	_ = os.Remove(filepath.Join(base, fmt.Sprintf("..2026_%d", version-1), "a.cedar"))
}

// readWhile reads the store in dir until done, checks each state, and tells who
// waits for it.
func readWhile(t *testing.T, dir string, reads chan<- struct{}, done <-chan struct{}) {
	t.Helper()
	store := policystore.New(dir, policystore.Config{})
	for {
		state, err := store.Read()
		switch {
		case errors.Is(err, policystore.ErrUnstable), errors.Is(err, fs.ErrNotExist):
		case err != nil:
			t.Error(err)
		case len(state.Archive) != 2 || string(state.Archive["a.cedar"]) != string(state.Archive["b.cedar"]):
			t.Errorf("read %v", textsOf(state.Archive))
		}
		select {
		case <-done:
			return
		case reads <- struct{}{}:
		default:
		}
	}
}

// A change of several files is applied when the manifest of all is there.
func TestWatchWaitsForTheManifest(t *testing.T) {
	files := versioned(t, 1)
	dir := newStore(t, files)
	f := follow(t, dir, policystore.Config{RequireManifest: true})
	for version := 2; version <= 4; version++ {
		next := versioned(t, version)
		for _, name := range []string{"b.cedar", "a.cedar"} {
			put(t, filepath.Join(dir, name), next[name])
			f.failed(is(policystore.ErrManifest))
		}
		put(t, filepath.Join(dir, "manifest.json"), next["manifest.json"])
		delete(next, "manifest.json")
		f.applied(next)
	}
}

// A manifest that is taken lists the file that is there.
func FuzzManifest(f *testing.F) {
	files := texts{"a.cedar": policy(1)}
	f.Add([]byte(manifestOf(f, 1, files)))
	f.Add([]byte(manifestOf(f, 1<<62, texts{"a.cedar": ""})))
	f.Add([]byte(`{"version":1,"files":{"a.cedar":"00","A.CEDAR":null},"allow_shrink":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		fsys := fstest.MapFS{"a.cedar": {Data: []byte(files["a.cedar"])}, "manifest.json": {Data: text}}
		archive, err := policystore.Read(fsys)
		if err != nil && !errors.Is(err, policystore.ErrManifest) {
			t.Errorf("the error is %v", err)
		}
		if err == nil && (len(archive) != 1 || string(archive["a.cedar"]) != files["a.cedar"]) {
			t.Errorf("read %v", textsOf(archive))
		}
	})
}
