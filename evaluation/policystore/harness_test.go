package policystore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// texts are the files of a store by their slash-separated paths.
type texts map[string]string

// policy is a policy that says which one it is.
func policy(version int) string {
	return fmt.Sprintf("@id(\"p\") permit (principal, action, resource) when { context.version == %d };\n", version)
}

// newStore makes a directory that holds files.
func newStore(t testing.TB, files texts) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, files)
	return dir
}

func fill(t testing.TB, dir string, files texts) {
	t.Helper()
	for name, text := range files {
		put(t, filepath.Join(dir, filepath.FromSlash(name)), text)
	}
}

// put writes a file in place.
func put(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// manifestOf returns the manifest.json of files.
func manifestOf(t testing.TB, version int64, files texts) string {
	t.Helper()
	m := policystore.Manifest{Version: version, Files: map[string]string{}}
	for name, text := range files {
		sum := sha256.Sum256([]byte(text))
		m.Files[name] = hex.EncodeToString(sum[:])
	}
	text, err := json.Marshal(m, json.Deterministic(true))
	must(t, err)
	return string(text)
}

func textsOf(a snapshot.Archive) texts {
	out := texts{}
	for name, text := range a {
		out[name] = string(text)
	}
	return out
}

// errRefused is what the tests' apply says of a policy that does not end.
var errRefused = errors.New("does not parse")

// A report is what a watch has told: a state and what became of it, or that
// there was none.
type report struct {
	files texts // nil when the store could not be read
	err   error
	at    time.Time
}

// A follower has a store watched and keeps what it is told.
type follower struct {
	t       testing.TB
	store   *policystore.Store
	reports chan report
	inForce texts
}

// follow has the store in dir watched, from what it holds, until the test ends.
// When it returns, the watch has begun.
func follow(t testing.TB, dir string, c policystore.Config, prepare ...func(*policystore.Store)) *follower {
	t.Helper()
	f := &follower{t: t, reports: make(chan report, 1000)}
	c.Failed = func(err error) { f.reports <- report{err: err, at: time.Now()} }
	f.store = policystore.New(dir, c)
	for _, p := range prepare {
		p(f.store)
	}
	state, err := f.store.Read()
	must(t, err)
	f.inForce = textsOf(state.Archive)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.store.Watch(ctx, state, f.apply)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	must(t, f.store.Reload(ctx))
	f.next()
	return f
}

func (f *follower) apply(_ context.Context, s *policystore.State) error {
	r := report{files: textsOf(s.Archive), at: time.Now()}
	for name, text := range s.Archive {
		if !bytes.HasSuffix(text, []byte(";\n")) {
			r.err = fmt.Errorf("%s %w", name, errRefused)
		}
	}
	f.reports <- r
	return r.err
}

// next returns the next report.
func (f *follower) next() report {
	f.t.Helper()
	select {
	case r := <-f.reports:
		if r.err == nil {
			f.inForce = r.files
		}
		return r
	case <-time.After(20 * time.Second):
		f.t.Fatal("nothing is reported")
		return report{}
	}
}

// applied waits for files to be applied. What comes before has to be told as
// well, so that nothing else can have been in force.
func (f *follower) applied(files texts) report {
	f.t.Helper()
	for {
		r := f.next()
		if r.err == nil && maps.Equal(r.files, files) {
			return r
		}
		if r.err == nil {
			f.t.Errorf("applied %v on the way to %v", r.files, files)
		}
	}
}

// failed waits for a failure and checks that it has changed nothing.
func (f *follower) failed(want func(error) bool) {
	f.t.Helper()
	before := f.inForce
	for {
		r := f.next()
		if r.err == nil && !maps.Equal(r.files, before) {
			f.t.Fatalf("applied %v", r.files)
		}
		if r.err != nil && want(r.err) {
			return
		}
	}
}

// says returns what reports whether an error says so.
func says(text string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), text) }
}

// is returns what reports whether an error is one.
func is(want error) func(error) bool {
	return func(err error) bool { return errors.Is(err, want) }
}
