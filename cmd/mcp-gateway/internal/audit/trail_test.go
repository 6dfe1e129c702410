package audit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string, c audit.Config) *audit.Trail {
	t.Helper()
	c.Now = func() time.Time { return now }
	trail, err := audit.Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { trail.Close() })
	return trail
}

func intent(t *testing.T, trail *audit.Trail, c audit.Call) uint64 {
	t.Helper()
	seq, err := trail.Intent(c)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func read(t *testing.T, dir string) []audit.Record {
	t.Helper()
	var all []audit.Record
	for r, err := range audit.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// story tells records in words.
func story(all []audit.Record) (lines []string) {
	for _, r := range all {
		line := fmt.Sprintf("%d %s", r.Seq, r.Kind)
		for _, part := range []string{r.Tool, string(r.Outcome), r.Reason} {
			if part != "" {
				line += " " + part
			}
		}
		if r.Of > 0 {
			line += fmt.Sprint(" of ", r.Of)
		}
		for _, intent := range r.Open {
			line += fmt.Sprint(" with ", intent.Seq)
		}
		lines = append(lines, line)
	}
	return lines
}

var paid = audit.Call{
	Server: "crm", Method: "tools/call", Tool: "pay", Subject: "user::alice", Agent: "agent-app", Tenant: "acme",
	Decisions: []string{"01J-1", "01J-2.0"}, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", ArgsDigest: "sha256:a", Definition: "sha256:d", Task: "task-1", Approval: "approval-1",
}

func TestTrail(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	first, second := intent(t, trail, paid), intent(t, trail, audit.Call{Tool: "read"})
	if err := errors.Join(
		trail.Refused(audit.Call{Tool: "delete"}, "denied"),
		trail.Done(second, audit.Failed, "upstream_error"),
		trail.Done(first, audit.Succeeded, ""),
	); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{first, second, 0, 99} {
		if err := trail.Done(seq, audit.Succeeded, ""); !errors.Is(err, audit.ErrEnded) {
			t.Errorf("an end of %d: %v", seq, err)
		}
	}
	all := read(t, dir)
	want := []string{"1 segment", "2 intent pay", "3 intent read", "4 refused delete denied", "5 outcome failed upstream_error of 3", "6 outcome succeeded of 2"}
	if diff := cmp.Diff(want, story(all)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(paid, all[1].Call); diff != "" || !all[1].Time.Equal(now) {
		t.Errorf("%v (-want +got):\n%s", all[1].Time, diff)
	}
}

// A restart makes what has no outcome unknown, once, and never anything else.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	lost := intent(t, trail, paid)
	ended := intent(t, trail, audit.Call{Tool: "read"})
	if err := trail.Done(ended, audit.Succeeded, ""); err != nil {
		t.Fatal(err)
	}
	trail.Close()
	if _, err := trail.Intent(paid); !errors.Is(err, audit.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	for i := range 2 {
		trail = open(t, dir, audit.Config{})
		var unknown []uint64
		for _, r := range trail.Unknown() {
			unknown = append(unknown, r.Seq)
		}
		if want := [][]uint64{{lost}, nil}[i]; !slices.Equal(unknown, want) {
			t.Errorf("restart %d: unknown %v, want %v", i, unknown, want)
		}
		if err := trail.Done(lost, audit.Succeeded, ""); !errors.Is(err, audit.ErrEnded) {
			t.Errorf("an end of what is unknown: %v", err)
		}
		trail.Close()
	}
	want := []string{"1 segment", "2 intent pay", "3 intent read", "4 outcome succeeded of 3", "5 outcome unknown restart of 2"}
	if diff := cmp.Diff(want, story(read(t, dir))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a crash has left of a record that nobody was told of is dropped.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	intent(t, trail, paid)
	trail.Close()
	name := filepath.Join(dir, "00000001.jsonl")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut <= len(whole); cut += 97 {
		torn := append(slices.Clone(whole), whole[:cut]...)
		torn = slices.DeleteFunc(torn[len(whole):], func(b byte) bool { return b == '\n' })
		if err := os.WriteFile(name, append(slices.Clone(whole), torn...), 0o600); err != nil {
			t.Fatal(err)
		}
		trail := open(t, dir, audit.Config{})
		if len(trail.Unknown()) != 1 {
			t.Errorf("cut at %d: %v", cut, trail.Unknown())
		}
		trail.Close()
		if got := story(read(t, dir)); len(got) != 3 || got[2] != "3 outcome unknown restart of 2" {
			t.Errorf("cut at %d: %q", cut, got)
		}
		if err := os.WriteFile(name, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Segments follow each other, and each says which intents are open.
func TestSegments(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{SegmentBytes: 1})
	lost := intent(t, trail, paid)
	for range 3 {
		if err := trail.Refused(audit.Call{Tool: "delete"}, "denied"); err != nil {
			t.Fatal(err)
		}
	}
	trail.Close()
	trail = open(t, dir, audit.Config{})
	if u := trail.Unknown(); len(u) != 1 || u[0].Seq != lost || u[0].Tool != "pay" {
		t.Errorf("%v", u)
	}
	trail.Close()
	want := []string{
		"1 segment", "2 intent pay", "3 segment with 2", "4 refused delete denied", "5 segment with 2", "6 refused delete denied", "7 segment with 2",
		"8 refused delete denied", "9 segment with 2", "10 outcome unknown restart of 2",
	}
	if diff := cmp.Diff(want, story(read(t, dir))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever is done to a trail but to cut off its end is seen; so is, by what
// opens it, what is done to its last segment.
func TestTampering(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(lines []string) []string
		seen bool
	}{
		{"nothing", func(l []string) []string { return l }, false},
		{"the end is cut off", func(l []string) []string { return l[:len(l)-1] }, false},
		{"a word is changed", func(l []string) []string { l[2] = strings.Replace(l[2], "denied", "allowed", 1); return l }, true},
		{"a record is removed", func(l []string) []string { return slices.Delete(l, 2, 3) }, true},
		{"the first is removed", func(l []string) []string { return l[1:] }, true},
		{"two change places", func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }, true},
		{"one is there twice", func(l []string) []string { return slices.Insert(l, 2, l[2]) }, true},
		{"a line is no record", func(l []string) []string { l[2] = "{}\n"; return l }, true},
		{"a member is there twice", func(l []string) []string { l[2] = strings.Replace(l[2], `{`, `{"seq":3,`, 1); return l }, true},
		{"nothing is left", func([]string) []string { return nil }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			trail := open(t, dir, audit.Config{})
			seq := intent(t, trail, paid)
			if err := errors.Join(trail.Refused(audit.Call{Tool: "delete"}, "denied"), trail.Refused(audit.Call{Tool: "drop"}, "denied"), trail.Done(seq, audit.Succeeded, "")); err != nil {
				t.Fatal(err)
			}
			trail.Close()
			name := filepath.Join(dir, "00000001.jsonl")
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Join(test.do(slices.Collect(strings.Lines(string(content)))), "")
			if err := os.WriteFile(name, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			var seen error
			for _, err := range audit.Read(dir) {
				seen = errors.Join(seen, err)
			}
			if got := errors.Is(seen, audit.ErrIntegrity); got != test.seen && changed != "" {
				t.Errorf("read: %v", seen)
			}
			again, err := audit.Open(dir, audit.Config{})
			if got := errors.Is(err, audit.ErrIntegrity); got != test.seen {
				t.Errorf("open: %v", err)
			}
			if err == nil {
				again.Close()
			}
		})
	}
}

func TestSegmentIsMissing(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{SegmentBytes: 1})
	for range 3 {
		intent(t, trail, paid)
	}
	trail.Close()
	if err := os.Remove(filepath.Join(dir, "00000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	if all := read(t, dir); len(all) == 0 || all[0].Kind != audit.Segment {
		t.Errorf("retention: %v", story(all))
	}
	if err := os.Remove(filepath.Join(dir, "00000003.jsonl")); err != nil {
		t.Fatal(err)
	}
	var seen error
	for _, err := range audit.Read(dir) {
		seen = errors.Join(seen, err)
	}
	if !errors.Is(seen, audit.ErrIntegrity) {
		t.Error(seen)
	}
}

// A trail that cannot be written lets nothing through, then and later.
func TestNotWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	trail := open(t, dir, audit.Config{SegmentBytes: 1})
	if err := os.RemoveAll(dir); err != nil { // so that no segment can be begun
		t.Fatal(err)
	}
	if _, err := trail.Intent(paid); !errors.Is(err, audit.ErrClosed) {
		t.Errorf("then: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := trail.Intent(paid); !errors.Is(err, audit.ErrClosed) {
		t.Errorf("later: %v", err)
	}
}

// Calls at the same time each have their record when they are told so.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{SegmentBytes: 8 << 10})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 5 {
				seq, err := trail.Intent(paid)
				if err := errors.Join(err, trail.Done(seq, audit.Succeeded, "")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	trail.Close()
	count := map[audit.Kind]int{}
	for _, r := range read(t, dir) {
		count[r.Kind]++
	}
	if count[audit.Intent] != 250 || count[audit.Done] != 250 || count[audit.Segment] < 2 {
		t.Errorf("%v", count)
	}
	if u := open(t, dir, audit.Config{}).Unknown(); len(u) != 0 {
		t.Errorf("unknown: %v", u)
	}
}

// What a client names a call does not make its record long, or another.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	name := "a\"}\n{\"seq\":3,\"kind\":\"outcome\"}\u2028" + strings.Repeat("x", 10_000)
	if err := trail.Refused(audit.Call{Tool: name, Method: "tools/call\xff"}, "unknown_tool"); err != nil {
		t.Fatal(err)
	}
	all := read(t, dir)
	if len(all) != 2 || len(all[1].Tool) > 600 || !strings.HasPrefix(all[1].Tool, "a\"}\n{") {
		t.Errorf("%q", story(all))
	}
}

// BenchmarkIntent is what the trail adds to a call, alone and among others.
func BenchmarkIntent(b *testing.B) {
	trail, err := audit.Open(b.TempDir(), audit.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer trail.Close()
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if seq, err := trail.Intent(paid); errors.Join(err, trail.Done(seq, audit.Succeeded, "")) != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("among 64", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if seq, err := trail.Intent(paid); errors.Join(err, trail.Done(seq, audit.Succeeded, "")) != nil {
					b.Error(err)
				}
			}
		})
	})
}

// FuzzRead opens what somebody else wrote. It is a trail, or an error, and a
// trail that was opened is one to the end.
func FuzzRead(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"seq":1,"time":"2026-11-20T12:00:00Z","kind":"segment"}` + "\n" + `{"seq":2,"time":"2026-11-20T12:00:00Z","kind":"intent","tool":"pay"}`))
	f.Add([]byte(`{"seq":7,"time":"2026-11-20T12:00:00Z","kind":"segment","open":[{"seq":5,"time":"2026-11-20T12:00:00Z","kind":"intent"}],"prev":"x"}` + "\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		trail, err := audit.Open(dir, audit.Config{})
		if err != nil {
			if !errors.Is(err, audit.ErrIntegrity) {
				t.Fatal(err)
			}
			return
		}
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
		for _, err := range audit.Read(dir) {
			if err != nil {
				t.Errorf("%q: %v", content, err)
			}
		}
	})
}
