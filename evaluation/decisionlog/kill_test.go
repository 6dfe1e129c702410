//go:build unix

package decisionlog_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// children are the programs that the test binary is when childEnv names one.
// They work on the log in the directory that is their argument.
var children = map[string]func(dir string) error{
	"strict":  func(dir string) error { return appendForever(dir, decisionlog.Strict) },
	"batched": func(dir string) error { return appendForever(dir, decisionlog.Batched) },
	"limited": limited,

	// It prunes only what it has not written itself, however long that takes.
	"restless": func(dir string) error {
		others := decisionlog.Retention{Age: 1, Hold: []decisionlog.Period{{From: time.Now()}}}
		return restless(dir, decisionlog.Strict, 1<<40, func() decisionlog.Retention { return others })
	},
	"brief": func(dir string) error { return brief(dir, decisionlog.Strict) },
	"hasty": func(dir string) error { return brief(dir, decisionlog.Batched) },
}

const childEnv = "DECISIONLOG_TEST_CHILD"

func TestMain(m *testing.M) {
	child, found := children[os.Getenv(childEnv)]
	if !found {
		os.Exit(m.Run())
	}
	if err := child(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startChild starts a child and returns it with its standard output.
func startChild(t *testing.T, name, dir string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// appendForever appends from 32 goroutines and prints the id of each accepted entry.
func appendForever(dir string, durability decisionlog.Durability) error {
	l, err := decisionlog.Open(dir, decisionlog.Config{Durability: durability})
	if err != nil {
		return err
	}
	var next atomic.Int64
	errs := make(chan error)
	for range 32 {
		go func() {
			for {
				e := entry(int(next.Add(1)))
				if err := l.Append(context.Background(), e); err != nil {
					errs <- err
					return
				}
				fmt.Println(e.ID)
			}
		}()
	}
	return <-errs
}

// restless appends, rotates, signs and prunes concurrently. It prints the ids of accepted entries
// and ends after enough of them.
func restless(dir string, durability decisionlog.Durability, enough int64, keep func() decisionlog.Retention) error {
	l, err := decisionlog.Open(dir, decisionlog.Config{Durability: durability, SegmentBytes: 1})
	if err != nil {
		return err
	}
	var next atomic.Int64
	errs := make(chan error, 18)
	for range 16 {
		go func() {
			for {
				n := next.Add(1)
				if n > enough {
					errs <- nil
					return
				}
				e := entry(int(n))
				e.ID = fmt.Sprintf("%d-%d", os.Getpid(), n)
				if err := l.Append(context.Background(), e); err != nil {
					errs <- err
					return
				}
				fmt.Println(e.ID)
			}
		}()
	}
	go func() {
		for {
			if _, err := l.Checkpoint(); err != nil {
				errs <- err
			}
			if _, err := l.Prune(context.Background(), keep()); err != nil {
				errs <- err
			}
		}
	}()
	for range 16 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// brief is restless for a short time and prunes by size.
func brief(dir string, durability decisionlog.Durability) error {
	return restless(dir, durability, 600, func() decisionlog.Retention { return decisionlog.Retention{Bytes: 200 << 10} })
}

// locked holds the start of programs back until it is released. A program has
// the files of its parent, and their locks, until it has begun.
func locked() (release func()) {
	syscall.ForkLock.RLock()
	return syscall.ForkLock.RUnlock
}

// killed kills a child after it has accepted enough entries, and returns all accepted ids.
func killed(t *testing.T, child, dir string, enough int) (accepted []string) {
	t.Helper()
	cmd, out := startChild(t, child, dir)
	for ids := bufio.NewScanner(out); ids.Scan(); {
		accepted = append(accepted, ids.Text())
		if len(accepted) == enough {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(accepted) < enough {
		t.Fatalf("child ended by itself after %d entries: %v", len(accepted), err)
	}
	return accepted
}

// lost returns the number of entries that the log lacks.
func lost(t *testing.T, dir string, accepted []string) int {
	t.Helper()
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	recorded := make(map[string]bool)
	for _, l := range lines(t, r) {
		recorded[l.ID] = true
	}
	n := 0
	for _, id := range accepted {
		if !recorded[id] {
			n++
		}
	}
	return n
}

func TestKill(t *testing.T) {
	for kill := range 5 {
		dir := t.TempDir()
		accepted := killed(t, "strict", dir, 200+150*kill)
		if n := lost(t, dir, accepted); n != 0 {
			t.Errorf("%d of %d accepted entries are lost", n, len(accepted))
		}
		before := verifyLog(t, dir).Entries
		fill(t, openLog(t, dir, decisionlog.Config{}), 0, 3)
		t.Logf("%d accepted, %d recorded", len(accepted), before)
	}
}

// The control of TestKill: a batched log loses its last accepted entries.
func TestKillLosesBatchedEntries(t *testing.T) {
	dir := t.TempDir()
	accepted := killed(t, "batched", dir, 700)
	n := lost(t, dir, accepted)
	if n == 0 {
		t.Errorf("none of %d accepted entries is lost", len(accepted))
	}
	verifyLog(t, dir)
	t.Logf("%d of %d accepted entries are lost", n, len(accepted))
}

// limited fills a log until the system lets the file grow no more, and appends
// once more when it does again.
func limited(dir string) error {
	l, err := decisionlog.Open(dir, decisionlog.Config{})
	if err != nil {
		return err
	}
	var unlimited syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: 18 << 20, Max: unlimited.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	for err == nil {
		err = l.Append(context.Background(), bulky(200_000))
	}
	if !errors.Is(err, decisionlog.ErrUnavailable) {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		return err
	}
	return errors.Join(l.Append(context.Background(), bulky(200_000)), l.Close())
}

func TestFileLimit(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startChild(t, "limited", dir)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if report := verifyLog(t, dir); report.Entries < 50 {
		t.Errorf("%d entries, want more", report.Entries)
	}
}
