package policystore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/policy-service/policy-service/evaluation/policystore"
)

const poll = time.Second

// errBlind is why the file system reports nothing.
var errBlind = errors.New("no more watches")

// A clock is a watch in a synctest bubble whose file system reports nothing, so
// that all that happens is up to the polls and the test.
type clock struct {
	t     *testing.T
	dir   string
	store *policystore.Store
	log   bytes.Buffer
	stop  func()

	mu      sync.Mutex
	told    []string // what apply and Failed were called with
	verdict func(string) error
}

// clockwork runs a test on the store in dir, which Watch takes to be in force
// if it can be read. All files are from long ago.
func clockwork(t *testing.T, dir string, c policystore.Config, test func(*clock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * 365 * 24 * time.Hour)
		watchByClock(t, dir, c, test)
	})
}

// clockworkBehind does so at a time when all files are from the future.
func clockworkBehind(t *testing.T, dir string, c policystore.Config, test func(*clock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { watchByClock(t, dir, c, test) })
}

func watchByClock(t *testing.T, dir string, c policystore.Config, test func(*clock)) {
	k := &clock{t: t, dir: dir, verdict: accept}
	c.Poll = poll
	c.Failed = func(err error) { k.tell("failed: " + err.Error()) }
	c.Log = slog.New(slog.NewTextHandler(&k.log, nil))
	k.store = policystore.New(dir, c)
	k.store.Blind(errBlind)
	ctx, stop := context.WithCancel(t.Context())
	k.stop = stop
	applied, _ := k.store.Read()
	go k.store.Watch(ctx, applied, k.apply)
	k.pass(1)
	test(k)
	stop()
	synctest.Wait()
}

func accept(string) error { return nil }

// judge makes verdict what apply thinks of the content of a.cedar.
func (k *clock) judge(verdict func(string) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.verdict = verdict
}

func (k *clock) apply(_ context.Context, s *policystore.State) error {
	text := string(s.Archive["a.cedar"])
	k.mu.Lock()
	verdict := k.verdict
	k.mu.Unlock()
	err := verdict(text)
	if err == nil {
		k.tell("applied " + text)
	} else {
		k.tell("refused " + text)
	}
	return err
}

func (k *clock) tell(line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, line)
}

func (k *clock) reload() error { return k.store.Reload(k.t.Context()) }

// pass lets some polls pass.
func (k *clock) pass(polls int) {
	time.Sleep(time.Duration(polls)*poll + poll/2)
	synctest.Wait()
}

func (k *clock) put(name, text string) {
	k.t.Helper()
	put(k.t, filepath.Join(k.dir, name), text)
}

// expect checks what has been told since it was last called.
func (k *clock) expect(want ...string) {
	k.t.Helper()
	k.mu.Lock()
	got := k.told
	k.told = nil
	k.mu.Unlock()
	if len(got) != len(want) {
		k.t.Fatalf("told %q, not %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			k.t.Errorf("told %q, not %q", got[i], want[i])
		}
	}
}

// Every content is told once, good or bad, for as long as it stays.
func TestWatchReportsOnce(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		k.judge(func(text string) error {
			if text == "bad" {
				return errRefused
			}
			return nil
		})
		k.pass(100)
		k.expect()
		k.put("a.cedar", "two")
		k.pass(100)
		k.expect("applied two")
		k.put("a.cedar", "bad")
		k.pass(100)
		k.expect("refused bad")
		k.put("a.cedar", "two")
		k.pass(100)
		k.expect("applied two")
		k.put("a.cedar", "two")
		k.put("README.md", "three")
		k.pass(100)
		k.expect()
	})
}

// So is every reason for which a store cannot be read; that it can be read
// again is told by applying it.
func TestWatchReportsFailuresOnce(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		must(t, os.Rename(dir, dir+".away"))
		k.pass(100)
		k.expect("failed: open policy store")
		must(t, os.Mkdir(dir, 0o700))
		k.pass(100)
		k.expect("failed: the policy store is empty")
		k.put("tenants/A/a.cedar", "")
		k.pass(100)
		k.expect("failed: read policy store: tenants/A:")
		must(t, os.RemoveAll(dir))
		must(t, os.Rename(dir+".away", dir))
		k.pass(100)
		k.expect("applied one")
	})
}

// What is in force already is not told, and what is not is.
func TestWatchBegins(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) { k.expect() })
	empty := newStore(t, nil)
	clockwork(t, empty, policystore.Config{}, func(k *clock) {
		k.expect("failed: the policy store is empty")
		k.put("a.cedar", "one")
		k.pass(1)
		k.expect("applied one")
	})
}

// An error that is not the content's fault is no judgement of it.
func TestWatchRetries(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		k.judge(func(string) error { return fmt.Errorf("disk full: %w", policystore.ErrRetry) })
		k.put("a.cedar", "two")
		k.pass(3)
		k.expect("refused two", "refused two", "refused two")
		k.judge(accept)
		k.pass(100)
		k.expect("applied two")
	})
}

// While a file is written again and again the store is read all the same.
func TestWatchWaitsForQuiet(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(0)})
	f := follow(t, dir, policystore.Config{Poll: time.Hour})
	path := filepath.Join(dir, "a.cedar")
	start := time.Now()
	for n := 0; len(f.reports) == 0; n-- {
		put(t, path, policy(n))
	}
	if took := f.next().at.Sub(start); took < policystore.Quiet {
		t.Errorf("read after %v", took)
	}
	put(t, path, policy(1))
	for !maps.Equal(f.next().files, texts{"a.cedar": policy(1)}) {
	}
}

func TestReload(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		must(t, k.reload())
		k.expect("applied one")
		k.put("a.cedar", "two")
		must(t, k.reload())
		k.expect("applied two")
		k.pass(100)
		k.expect()

		k.judge(func(string) error { return errRefused })
		for range 2 {
			if err := k.reload(); !errors.Is(err, errRefused) {
				t.Errorf("the error is %v", err)
			}
			k.expect("refused two")
		}
		k.pass(100)
		k.expect()

		must(t, os.Remove(filepath.Join(dir, "a.cedar")))
		for range 2 {
			if err := k.reload(); !errors.Is(err, policystore.ErrEmpty) {
				t.Errorf("the error is %v", err)
			}
		}
		k.pass(100)
		k.expect("failed: the policy store is empty")
	})
}

// Reloads that wait for one that runs share the next reading, which is of what
// there was when the last of them was called.
func TestReloadsAreCoalesced(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		running := make(chan struct{})
		k.judge(func(string) error { <-running; return nil })
		errs := make(chan error)
		go func() { errs <- k.reload() }()
		synctest.Wait()
		k.put("a.cedar", "two")
		for range 100 {
			go func() { errs <- k.reload() }()
		}
		synctest.Wait()
		close(running)
		for range 101 {
			must(t, <-errs)
		}
		k.expect("applied one", "applied two")
	})
}

// Who has given up waiting is not waited for.
func TestReloadGivesUp(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		running := make(chan struct{})
		k.judge(func(string) error { <-running; return nil })
		for range 2 { // one that is running and one that waits for it
			ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
			defer cancel()
			if err := k.store.Reload(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error is %v", err)
			}
		}
		close(running)
		synctest.Wait()
		k.expect("applied one")
		k.stop()
		synctest.Wait()
		if err := k.reload(); !errors.Is(err, policystore.ErrStopped) {
			t.Errorf("the error is %v", err)
		}
	})
}

// However many edits are made while one is applied, they are applied together.
func TestEditsAreCoalesced(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		running := make(chan struct{})
		k.judge(func(string) error { <-running; return nil })
		k.put("a.cedar", "two")
		k.pass(1)
		for i := range 100 {
			k.put("a.cedar", strconv.Itoa(i))
			k.pass(1)
		}
		close(running)
		k.pass(2)
		k.expect("applied two", "applied 99")
	})
}

// A lower version is not applied, however it is asked for, and whatever was
// applied in between.
func TestWatchRefusesRollback(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "v3", "manifest.json": manifestOf(t, 3, texts{"a.cedar": "v3"})})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		change := func(version int64, text string) {
			k.put("a.cedar", text)
			k.put("manifest.json", manifestOf(t, version, texts{"a.cedar": text}))
			k.pass(1)
		}
		change(2, "v2")
		k.expect("failed: " + policystore.ErrRollback.Error() + ": version 2 is lower than 3")
		if err := k.reload(); !errors.Is(err, policystore.ErrRollback) {
			t.Errorf("the error is %v", err)
		}
		change(5, "v5")
		k.expect("applied v5")
		must(t, os.Remove(filepath.Join(dir, "manifest.json")))
		k.put("a.cedar", "none")
		k.pass(1)
		k.expect("applied none")
		change(4, "v4")
		k.expect("failed: " + policystore.ErrRollback.Error() + ": version 4 is lower than 5")
		k.judge(func(string) error { return errRefused })
		change(9, "v9")
		k.expect("refused v9")
		k.judge(accept)
		change(5, "again v5")
		k.expect("applied again v5")
		change(6, "again v5")
		k.expect("applied again v5")
	})
}

// That the file system reports nothing is logged once.
func TestWatchWithoutNotices(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": "one"})
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		k.put("a.cedar", "two")
		k.pass(100)
		k.expect("applied two")
		if log := k.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, errBlind.Error()) {
			t.Errorf("the log says %q", log)
		}
	})
}

// A store that does not change is listed and not read, save now and then.
func TestPollsReadLittle(t *testing.T) {
	const size = 4 << 20
	dir := newStore(t, nil)
	sparse(t, filepath.Join(dir, "a.cedar"), size)
	clockwork(t, dir, policystore.Config{}, func(k *clock) {
		for polls, want := range map[int]int64{policystore.Rereads / 2: 0, 10 * policystore.Rereads: 10} {
			before := bytesRead(t)
			k.pass(polls)
			if got := (bytesRead(t) - before) / size; got < want-1 || got > want+1 {
				t.Errorf("in %d polls the store was read %d times, not %d", polls, got, want)
			}
		}
		k.expect()
	})
}

// Times that say nothing, because the clocks differ, are not relied upon.
func TestFilesFromTheFuture(t *testing.T) {
	const size = 1 << 20
	dir := newStore(t, texts{"a.cedar": "one"})
	sparse(t, filepath.Join(dir, "b.cedar"), size)
	clockworkBehind(t, dir, policystore.Config{}, func(k *clock) {
		before := bytesRead(t)
		k.pass(policystore.Rereads)
		if got := (bytesRead(t) - before) / size; got < policystore.Rereads/3 {
			t.Errorf("in %d polls the store was read %d times", policystore.Rereads, got)
		}
		k.expect()
		k.put("a.cedar", "two")
		k.pass(3)
		k.expect("applied two")
	})
}

// bytesRead returns how much this process has read.
func bytesRead(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err)
	}
	var n int64
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	must(t, err)
	return n
}

// A file system that has lost notices says so, and that is one. What it has
// ceased to watch is watched again.
func TestOverflowIsANotice(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(0)})
	var tapped <-chan *fsnotify.Watcher
	f := follow(t, dir, policystore.Config{Poll: time.Hour}, func(s *policystore.Store) { tapped = s.Tap() })
	watcher := <-tapped
	for version := 1; version <= 3; version++ {
		must(t, f.store.Reload(t.Context()))
		f.next()
		for _, path := range watcher.WatchList() {
			_ = watcher.Remove(path)
		}
		put(t, filepath.Join(dir, "a.cedar"), policy(version))
		watcher.Errors <- fsnotify.ErrEventOverflow
		f.applied(texts{"a.cedar": policy(version)})
	}
	put(t, filepath.Join(dir, "a.cedar"), policy(4))
	f.applied(texts{"a.cedar": policy(4)})
}

// What happens beside a store does not keep it from being noticed.
func TestEventsNextToTheStore(t *testing.T) {
	if testing.Short() {
		t.Skip("writes many files: make check runs it")
	}
	dir := newStore(t, texts{"a.cedar": policy(0)})
	f := follow(t, dir, policystore.Config{Poll: time.Hour})
	for version := 1; version <= 3; version++ {
		for i := range 4_000 {
			path := filepath.Join(filepath.Dir(dir), fmt.Sprint(i))
			put(t, path, "noise")
			must(t, os.Remove(path))
		}
		put(t, filepath.Join(dir, "a.cedar"), policy(version))
		f.applied(texts{"a.cedar": policy(version)})
	}
}

// A watch leaves nothing behind.
func TestWatchEnds(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(0)})
	before := descriptors(t)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		store := policystore.New(dir, policystore.Config{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			store.Watch(ctx, nil, func(context.Context, *policystore.State) error { return nil })
		}()
		must(t, store.Reload(ctx))
		cancel()
		<-ended
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d files are open, not %d", after, before)
	}
}

// descriptors returns how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

// That a change is being applied can be asked while it is.
func TestPending(t *testing.T) {
	dir := newStore(t, texts{"a.cedar": policy(0)})
	store := policystore.New(dir, policystore.Config{Poll: time.Hour})
	state, err := store.Read()
	must(t, err)
	applying, released := make(chan bool), make(chan bool)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		store.Watch(ctx, state, func(context.Context, *policystore.State) error {
			applying <- true
			<-released
			return nil
		})
	}()
	put(t, filepath.Join(dir, "a.cedar"), policy(1))
	<-applying
	if since := store.Pending(); since.IsZero() || time.Since(since) > time.Minute {
		t.Errorf("while a change is applied it is pending since %v", since)
	}
	go func() { released <- true; <-applying; released <- true }()
	must(t, store.Reload(ctx))
	if since := store.Pending(); !since.IsZero() {
		t.Errorf("pending since %v", since)
	}
	cancel()
	<-ended
}
