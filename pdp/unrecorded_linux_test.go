package pdp_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// The log counts as failing until it has taken entries, and refused none, for half a minute. So the state
// does not change with each request.
func TestFailingLogIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u pdp.Unrecorded
		want := func(since time.Time, when string) {
			t.Helper()
			if got := u.Since(); !got.Equal(since) {
				t.Errorf("%s: since %v, want %v", when, got, since)
			}
		}
		want(time.Time{}, "at first")
		began := time.Now()
		u.Refuse()
		for range 20 {
			u.Answer()
			want(began, "after an answer")
			u.Refuse()
			want(began, "after a refusal")
			time.Sleep(10 * time.Second)
		}
		u.Answer()
		want(began, "soon after a refusal")
		time.Sleep(19 * time.Second)
		want(began, "29 seconds after a refusal")
		time.Sleep(time.Second)
		want(time.Time{}, "after half a minute")
		u.Refuse()
		began = time.Now()
		time.Sleep(time.Hour)
		want(began, "of a new run, without another request")
	})
}

// While a disk is full, small entries still fit and large ones do not. The state is that of a failing log
// all the time.
func TestStateOnAFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tmpfs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := start(t, pdp.Config{State: dir})
	defer s.stop(t)
	ask := func(kilobytes int) int {
		members := make([]string, kilobytes+1)
		for n := range members {
			members[n] = fmt.Sprintf("%q:%q", fmt.Sprint("m", n), strings.Repeat("x", min(1000, 1000*n)))
		}
		body := `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":{` + strings.Join(members, ",") + `}}`
		answer, _ := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, body)
		return answer.StatusCode
	}
	for n := range 200 { // leaves room for small entries in the files of the log
		ask(max(0, n%10-8) * 20)
	}
	get(t, s.admin+pdp.PathLogQuery) // when everything is in its segment
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	taken := 0
	for n := range 8 {
		if status := ask(900); status != http.StatusServiceUnavailable {
			t.Fatalf("a large request on a full disk: %d", status)
		}
		if ask(0) == http.StatusOK {
			taken++
		}
		var now struct {
			State pdp.State `json:"state"`
		}
		if _, text := get(t, s.admin+pdp.PathStatus); json.Unmarshal([]byte(text), &now) != nil || now.State != pdp.StateLogFailing {
			t.Errorf("look %d, %d small entries taken: %s", n, taken, now.State)
		}
	}
	if taken == 0 {
		t.Error("no small entry was taken, so the state had no reason to change")
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
}
