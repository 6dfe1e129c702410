package decisionlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

func headPath(dir string) string { return filepath.Join(dir, "checkpoint", "HEAD") }

func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, decisionlog.Config{})
	fill(t, l, 0, 7)
	signed, err := l.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if signed.Head != l.Head() {
		t.Errorf("checkpoint of %v, the head is %v", signed.Head, l.Head())
	}
	want := fmt.Sprintf("%s\n7\n%v\n\n— %s ", signed.Origin, l.Head().Root, signed.Origin)
	if !strings.HasPrefix(signed.Note, want) {
		t.Errorf("note:\n%s\nwant it to begin with\n%s", signed.Note, want)
	}
	published, err := os.ReadFile(headPath(dir))
	if err != nil || string(published) != signed.Note {
		t.Errorf("HEAD is %q, %v", published, err)
	}
	keys, err := l.Keys()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(keys[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open([]byte(signed.Note), note.VerifierList(verifier)); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(dir, "checkpoint", "key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
	again, err := l.Checkpoint()
	if err != nil || again != signed {
		t.Errorf("a second checkpoint of the same head: %v, %v", again, err)
	}
}

func TestParseCheckpoint(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	other := openLog(t, t.TempDir(), decisionlog.Config{})
	fill(t, l, 0, 3)
	signed, err := l.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := l.Keys()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decisionlog.ParseCheckpoint([]byte(signed.Note), keys); err != nil || *got != *signed {
		t.Errorf("got %v, %v", got, err)
	}
	others, err := other.Keys()
	if err != nil {
		t.Fatal(err)
	}
	for name, refuse := range map[string]func() error{
		"another key": func() error { _, err := decisionlog.ParseCheckpoint([]byte(signed.Note), others); return err },
		"no key":      func() error { _, err := decisionlog.ParseCheckpoint([]byte(signed.Note), nil); return err },
		"another size": func() error {
			_, err := decisionlog.ParseCheckpoint([]byte(strings.Replace(signed.Note, "\n3\n", "\n4\n", 1)), keys)
			return err
		},
		"nothing": func() error { _, err := decisionlog.ParseCheckpoint(nil, keys); return err },
	} {
		var integrity *decisionlog.IntegrityError
		if err := refuse(); !errors.As(err, &integrity) {
			t.Errorf("%s: %v, want an IntegrityError", name, err)
		}
	}
}

// rolledBack restores the log after size entries and applies change to its checkpoint.
func rolledBack(t *testing.T, size int, change func(dir string) error) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, n := range []int{size, 50} {
		l, err := decisionlog.Open(dir, decisionlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, int(l.Head().Size), n)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if n == size {
			if err := copyFile(segmentPath(dir), filepath.Join(dir, "old.db")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := change(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRollback(t *testing.T) {
	restore := func(dir string) error { return copyFile(filepath.Join(dir, "old.db"), segmentPath(dir)) }
	for _, tt := range []struct {
		name   string
		size   int64 // number of remaining entries
		change func(dir string) error
	}{
		{"an older file", 30, restore},
		{"no file", 0, func(dir string) error { return os.Remove(segmentPath(dir)) }},
		{"another history", 30, func(dir string) error {
			return errors.Join(restore(dir), forge(dir, 60))
		}},
		{"no checkpoint", 50, func(dir string) error { return os.Remove(headPath(dir)) }},
		{"neither checkpoint nor key", 50, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "checkpoint")) }},
		{"an empty checkpoint", 50, func(dir string) error { return os.Truncate(headPath(dir), 0) }},
		{"a checkpoint that is not signed", 50, func(dir string) error {
			return os.WriteFile(headPath(dir), []byte("policy-service/x\n1\nAAAA\n"), 0o600)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := rolledBack(t, 30, tt.change)
			var integrity *decisionlog.IntegrityError
			if l, err := decisionlog.Open(dir, decisionlog.Config{}); !errors.As(err, &integrity) {
				if err == nil {
					l.Close()
				}
				t.Fatalf("Open: %v, want an IntegrityError", err)
			}
			if _, err := decisionlog.Verify(t.Context(), dir); !errors.As(err, &integrity) {
				t.Errorf("Verify: %v, want an IntegrityError", err)
			}
			accepted(t, dir, integrity.Error())
		})
	}
}

// accepted opens a rolled-back log with the operator's reason, which the last entry must have.
func accepted(t *testing.T, dir, fault string) {
	t.Helper()
	l := openLog(t, dir, decisionlog.Config{AcceptRollback: "restored from the backup of Monday"})
	all := lines(t, l.Reader)
	last := all[len(all)-1]
	if last.Kind != decisionlog.KindAdmin {
		t.Fatalf("the last entry is of kind %q", last.Kind)
	}
	for _, want := range []string{`"action":"accept_rollback"`, `"reason":"restored from the backup of Monday"`, `"fault":`} {
		if !strings.Contains(string(last.Request), want) {
			t.Errorf("the entry %s lacks %s", last.Request, want)
		}
	}
	if signed, err := l.LastCheckpoint(); err != nil || signed.Head != l.Head() {
		t.Errorf("checkpoint %v, %v, the head is %v (%s)", signed, err, l.Head(), fault)
	}
}

// forge appends entries to a log without its key.
func forge(dir string, until int) error {
	aside := filepath.Join(dir, "aside")
	if err := os.Rename(filepath.Join(dir, "checkpoint"), aside); err != nil {
		return err
	}
	l, err := decisionlog.Open(dir, decisionlog.Config{AcceptRollback: "forged"})
	if err != nil {
		return err
	}
	for n := int(l.Head().Size); n < until; n++ {
		e := entry(n)
		e.Tenant = "forged"
		if err := l.Append(context.Background(), e); err != nil {
			return err
		}
	}
	return errors.Join(l.Close(), os.RemoveAll(filepath.Join(dir, "checkpoint")), os.Rename(aside, filepath.Join(dir, "checkpoint")))
}

func TestRotateKey(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, decisionlog.Config{})
	fill(t, l, 0, 5)
	before, err := l.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	old, err := l.Keys()
	if err != nil {
		t.Fatal(err)
	}
	change, err := l.RotateKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	public := change.Key
	keys, err := l.Keys()
	if err != nil || len(keys) != 2 || keys[1] != public {
		t.Fatalf("keys %q, %v", keys, err)
	}
	if kept := readFile(t, filepath.Join(dir, "checkpoint", "key.change")); string(kept) != change.Checkpoint {
		t.Errorf("what is kept is %q", kept)
	}
	for name, key := range map[string]string{"old": old[0], "new": public} {
		if both, err := decisionlog.ParseCheckpoint([]byte(change.Checkpoint), []string{key}); err != nil || both.Size != 6 {
			t.Errorf("the checkpoint over the change, of size %d, is not signed with the %s key: %v", both.Size, name, err)
		}
	}
	fill(t, l, 6, 9)
	after, err := l.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decisionlog.ParseCheckpoint([]byte(after.Note), old); err == nil {
		t.Error("the old key still signs")
	}
	if after.Origin != before.Origin {
		t.Errorf("the log was %s and is %s", before.Origin, after.Origin)
	}
	if got := lines(t, l.Reader)[5]; got.Kind != decisionlog.KindAdmin || !strings.Contains(string(got.Request), public) {
		t.Errorf("entry 5 does not name the new key: %s", got.Request)
	}
}

// During appends and checkpoints, each key change has signatures of both keys, and each checkpoint
// a signature of the current key.
func TestRotateKeyWhileSigning(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := l.Append(context.Background(), entry(n)); err != nil {
					t.Error(err)
				}
				if _, err := l.Checkpoint(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	keys, err := l.Keys()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		old := keys[len(keys)-1]
		change, err := l.RotateKey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, change.Key)
		for _, key := range []string{old, change.Key} {
			if _, err := decisionlog.ParseCheckpoint([]byte(change.Checkpoint), []string{key}); err != nil {
				t.Error(err)
			}
		}
		later, err := l.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decisionlog.ParseCheckpoint([]byte(later.Note), []string{change.Key}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	busy.Wait()
	if all, err := l.Keys(); err != nil || !slices.Equal(all, keys) {
		t.Errorf("keys %q, want %q; %v", all, keys, err)
	}
}
