package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// record appends entries to the log in state, from one id to before another.
// The log may be read just then.
func record(t *testing.T, state string, from, until int) {
	t.Helper()
	l, err := decisionlog.Open(state, decisionlog.Config{})
	for errors.Is(err, decisionlog.ErrLocked) && t.Context().Err() == nil {
		l, err = decisionlog.Open(state, decisionlog.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for n := from; n < until; n++ {
		e := decisionlog.Entry{ID: fmt.Sprintf("id-%d", n), Time: time.Unix(0, 0), Kind: decisionlog.KindAdmin}
		if err := l.Append(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTail holds that log tail shows the last entries, then each that comes
// once, and ends when it is interrupted.
func TestTail(t *testing.T) {
	state := t.TempDir()
	record(t, state, 0, 5)
	command := exec.CommandContext(t.Context(), "policy-service", "log", "tail", "--state", state, "--last", "2", "--every", "1ms")
	command.Env = append(os.Environ(), "GORACE="+hurry)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.HasSuffix(lines.Text(), want) {
			t.Errorf("%q, want …%s", lines.Text(), want)
		}
	}
	expect("ID")
	expect("id-3")
	expect("id-4")
	record(t, state, 5, 7)
	expect("id-5")
	expect("id-6")
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("%q is more than there is", lines.Text())
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}
