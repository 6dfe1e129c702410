package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// open opens a trail, which the test verifies when it ends.
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

func closeTrail(t *testing.T, trail *audit.Trail) {
	t.Helper()
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
}

func forward(t *testing.T, trail *audit.Trail, c audit.Call) string {
	t.Helper()
	id, err := trail.Forward(c)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A record is an entry of a trail as the log has it.
type record struct {
	decisionlog.Record
	request struct {
		audit.Entry
		Calls []string `json:"calls"`
	}
}

// read verifies a closed trail and returns its entries.
func read(t *testing.T, dir string) (all []record) {
	t.Helper()
	if _, err := decisionlog.Verify(t.Context(), dir); err != nil {
		t.Fatalf("verify: %v", err)
	}
	log, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for line, err := range log.Select(t.Context(), decisionlog.Filter{}) {
		var r record
		if err := errors.Join(err, json.Unmarshal(line, &r.Record), json.Unmarshal(r.Request, &r.request)); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// story describes entries: the kind, what it is about, and for an outcome the
// number of its call.
func story(all []record) (lines []string) {
	index := make(map[string]int64)
	for _, r := range all {
		index[r.ID] = r.Index
		line := fmt.Sprintf("%d %s", r.Index, r.Kind)
		if r.request.Resource != nil {
			line += fmt.Sprintf(" %s %s %s", r.request.Resource.Type, r.request.Resource.ID, r.request.Event)
		}
		if r.request.Reason != "" {
			line += " " + r.request.Reason
		}
		if r.request.Call != "" {
			line += fmt.Sprint(" of ", index[r.request.Call])
		}
		for _, id := range r.request.Calls {
			line += fmt.Sprint(" ", index[id])
		}
		lines = append(lines, line)
	}
	return lines
}

var pay = audit.Call{
	Server: "crm", Method: "tools/call", Tool: "pay", Subject: audit.Entity{Type: "user", ID: "alice"}, Agent: "agent-app", Tenant: "acme",
	Decisions: []string{"01J-1", "01J-2.0"}, RequestID: "request-1", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
	ArgsDigest: "sha256:a", Definition: "sha256:d", Task: "task-1", Approval: "approval-1",
}

func call(server, method, target string) audit.Call {
	return audit.Call{Server: server, Method: method, Tool: target, Subject: audit.Entity{Type: "user", ID: "bob"}}
}

// A call whose outcome a restart made unknown has one after all when its client
// resumes the response stream, once.
func TestResumed(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	here, lost := forward(t, trail, pay), forward(t, trail, pay)
	if err := trail.Resumed(here, audit.Failed); err != nil {
		t.Fatal(err)
	}
	closeTrail(t, trail)
	trail = open(t, dir, audit.Config{})
	if err := trail.Resumed(lost, audit.Succeeded); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{here, lost, "of nobody"} {
		if err := trail.Resumed(id, audit.Succeeded); !errors.Is(err, audit.ErrEnded) {
			t.Errorf("another outcome of %q: %v", id, err)
		}
	}
	closeTrail(t, trail)
	closeTrail(t, open(t, dir, audit.Config{}))
	want := []string{
		"0 gateway.pending",
		"1 gateway.call tool crm:pay forwarded",
		"2 gateway.call tool crm:pay forwarded",
		"3 gateway.outcome tool crm:pay failed resumed of 1",
		"4 gateway.outcome tool crm:pay unknown restart of 2",
		"5 gateway.pending",
		"6 gateway.outcome tool crm:pay succeeded resumed of 2",
		"7 gateway.pending",
	}
	if diff := cmp.Diff(want, story(read(t, dir))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEachCallHasItsEntries(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	first, second := forward(t, trail, pay), forward(t, trail, call("crm", "resources/read", "file:///a"))
	if err := errors.Join(
		trail.Refused(call("crm", "tools/call", "delete"), "denied"),
		trail.Refused(call("crm", "initialize", ""), "denied"),
		trail.Done(second, audit.Failed, "upstream_error"),
		trail.Done(first, audit.Succeeded, ""),
	); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{first, second, "", "of nobody"} {
		if err := trail.Done(id, audit.Succeeded, ""); !errors.Is(err, audit.ErrEnded) {
			t.Errorf("an outcome of %q: %v", id, err)
		}
	}
	closeTrail(t, trail)
	all := read(t, dir)
	want := []string{
		"0 gateway.pending",
		"1 gateway.call tool crm:pay forwarded",
		"2 gateway.call resource crm:file:///a forwarded",
		"3 gateway.refused tool crm:delete refused denied",
		"4 gateway.refused server crm refused denied",
		"5 gateway.outcome resource crm:file:///a failed upstream_error of 2",
		"6 gateway.outcome tool crm:pay succeeded of 1",
	}
	if diff := cmp.Diff(want, story(all)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	got, entry := all[1], all[1].request.Entry
	back := audit.Call{
		Server: entry.Server, Method: entry.Action.Name, Tool: entry.Tool, Subject: *entry.Subject, Agent: entry.Agent, Tenant: got.Tenant,
		Decisions: entry.Decisions, RequestID: got.RequestID, TraceID: got.TraceID,
		ArgsDigest: entry.ArgsDigest, Definition: entry.Definition, Task: entry.Task, Approval: entry.Approval,
	}
	if diff := cmp.Diff(pay, back); diff != "" || !got.Time.Equal(now) {
		t.Errorf("%v (-want +got):\n%s", got.Time, diff)
	}
}

// The filters and tables of the log find calls by subject, tenant and kind.
func TestLogQueryFindsCalls(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	id := forward(t, trail, pay)
	if err := errors.Join(trail.Refused(call("crm", "tools/call", "delete"), "denied"), trail.Done(id, audit.Succeeded, "")); err != nil {
		t.Fatal(err)
	}
	closeTrail(t, trail)
	log, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, test := range []struct {
		filter decisionlog.Filter
		want   []string
	}{
		{decisionlog.Filter{Subject: "user::alice"}, []string{"user::alice tools/call tool::crm:pay forwarded task-1", "user::alice tools/call tool::crm:pay succeeded task-1"}},
		{decisionlog.Filter{Subject: "bob"}, []string{"user::bob tools/call tool::crm:delete refused "}},
		{decisionlog.Filter{Tenant: "acme", Kind: decisionlog.KindGatewayOutcome}, []string{"user::alice tools/call tool::crm:pay succeeded task-1"}},
		{decisionlog.Filter{ID: id}, []string{"user::alice tools/call tool::crm:pay forwarded task-1"}},
		{decisionlog.Filter{Subject: "user::carol"}, nil},
	} {
		var got []string
		for line, err := range log.Select(t.Context(), test.filter) {
			rows, rowsErr := decisionlog.ReadDecisions(line)
			if err := errors.Join(err, rowsErr); err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				got = append(got, fmt.Sprintf("%s %s %s %s %s", r.Subject, r.Action, r.Resource, r.Approval.Event, r.Approval.Task))
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.filter, diff)
		}
	}
}

// A restart gives a call without an outcome the outcome unknown, once.
func TestRestartEndsPendingCalls(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	lost := forward(t, trail, pay)
	ended := forward(t, trail, call("crm", "tools/call", "read"))
	if err := trail.Done(ended, audit.Succeeded, ""); err != nil {
		t.Fatal(err)
	}
	closeTrail(t, trail)
	if _, err := trail.Forward(pay); !errors.Is(err, decisionlog.ErrUnavailable) {
		t.Errorf("after the end: %v", err)
	}
	for i := range 2 {
		trail = open(t, dir, audit.Config{})
		want := [][]audit.Pending{{{ID: lost, Server: "crm", Method: "tools/call", Tool: "pay", Subject: pay.Subject, Decisions: pay.Decisions}}, nil}[i]
		if diff := cmp.Diff(want, trail.Unknown()); diff != "" {
			t.Errorf("restart %d (-want +got):\n%s", i, diff)
		}
		if err := trail.Done(lost, audit.Succeeded, ""); !errors.Is(err, audit.ErrEnded) {
			t.Errorf("an outcome of an unknown call: %v", err)
		}
		closeTrail(t, trail)
	}
	want := []string{
		"0 gateway.pending", "1 gateway.call tool crm:pay forwarded", "2 gateway.call tool crm:read forwarded", "3 gateway.outcome tool crm:read succeeded of 2",
		"4 gateway.outcome tool crm:pay unknown restart of 1", "5 gateway.pending", "6 gateway.pending",
	}
	if diff := cmp.Diff(want, story(read(t, dir))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever happened between two lists of pending calls, the next process finds
// the calls without an outcome, and no others.
func TestPendingListsAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		dir := t.TempDir()
		trail := open(t, dir, audit.Config{PendingEvery: 1 + random.IntN(7)})
		var mu sync.Mutex
		var want []string
		var all sync.WaitGroup
		for range 8 {
			ends := []bool{random.IntN(4) > 0, random.IntN(4) > 0, random.IntN(4) > 0}
			later := random.IntN(2) == 0
			all.Go(func() {
				for _, end := range ends {
					id, err := trail.Forward(pay)
					switch {
					case err == nil && end && later:
						trail.DoneLater(id, audit.Succeeded, "", func(err error) { t.Error(err) })
					case err == nil && end:
						err = trail.Done(id, audit.Succeeded, "")
					}
					if err != nil {
						t.Error(err)
					}
					if !end {
						mu.Lock()
						want = append(want, id)
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		closeTrail(t, trail)
		trail = open(t, dir, audit.Config{})
		var got []string
		for _, p := range trail.Unknown() {
			got = append(got, p.ID)
		}
		closeTrail(t, trail)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s\n%s", diff, strings.Join(story(read(t, dir)), "\n"))
		}
	}
}

// A client may have its answer milliseconds before the outcome is on disk. A process
// that dies in between leaves an unknown outcome; one that closes the trail leaves none.
func TestDoneLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		trail, err := audit.Open(dir, audit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		id := forward(t, trail, pay)
		later := func(id string) (err error) {
			trail.DoneLater(id, audit.Succeeded, "", func(failed error) { err = failed })
			return err
		}
		want := func(when string, event ...string) {
			t.Helper()
			if diff := cmp.Diff(event, outcomesAfterKill(t, dir)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		if err := later(id); err != nil {
			t.Fatal(err)
		}
		want("killed at once", "unknown")
		if err := later(id); !errors.Is(err, audit.ErrEnded) {
			t.Errorf("a second outcome: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		want("killed after five milliseconds", "succeeded")
		if err := later(forward(t, trail, pay)); err != nil {
			t.Fatal(err)
		}
		closeTrail(t, trail)
		want("closed at once", "succeeded", "succeeded")
	})
}

// outcomesAfterKill returns the outcomes that the next process finds and gives if the
// process of a trail dies now.
func outcomesAfterKill(t *testing.T, dir string) (events []string) {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	closeTrail(t, open(t, left, audit.Config{}))
	for _, r := range read(t, left) {
		if r.request.Call != "" {
			events = append(events, r.request.Event)
		}
	}
	return events
}

// A trail is opened by the entries behind its last list of pending calls, and not
// by all of it.
func TestOpenReadsTheEndOnly(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{PendingEvery: 10})
	lost := forward(t, trail, pay)
	for range 95 {
		if err := trail.Refused(pay, "denied"); err != nil {
			t.Fatal(err)
		}
	}
	closeTrail(t, trail)
	all := read(t, dir)
	lists := 0
	for i, r := range all {
		if r.Kind != decisionlog.KindGatewayPending {
			continue
		}
		lists++
		if i > 0 && !slices.Equal(r.request.Calls, []string{lost}) {
			t.Errorf("entry %d lists %q", i, r.request.Calls)
		}
		if i%11 != 0 {
			t.Errorf("entry %d is a list", i)
		}
	}
	if lists != 10 {
		t.Errorf("%d lists", lists)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, audit.Config{})
	_, err := audit.Open(dir, audit.Config{})
	if !errors.Is(err, decisionlog.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
}

// Verification finds a changed word, a removed segment and a lost end.
func TestVerifyFindsTampering(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, dir string){
		"control": func(*testing.T, string) {},
		"a word is changed": func(t *testing.T, dir string) {
			file := segment(t, dir)
			content, err := os.ReadFile(file)
			if err != nil || !bytes.Contains(content, []byte(`"reason":"denied"`)) {
				t.Fatal("no such entry", err)
			}
			if err := os.WriteFile(file, bytes.ReplaceAll(content, []byte(`"reason":"denied"`), []byte(`"reason":"expiry"`)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"an older copy is put back": func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "older.db"), segment(t, dir)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			trail := open(t, dir, audit.Config{})
			closeTrail(t, trail)
			older, err := os.ReadFile(segment(t, dir))
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "older.db"), older, 0o600)); err != nil {
				t.Fatal(err)
			}
			trail = open(t, dir, audit.Config{})
			if err := trail.Refused(pay, "denied"); err != nil {
				t.Fatal(err)
			}
			closeTrail(t, trail)
			tamper(t, dir)
			_, err = decisionlog.Verify(t.Context(), dir)
			var found *decisionlog.IntegrityError
			if name == "control" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, &found) {
				t.Errorf("not found: %v", err)
			}
		})
	}
}

// segment is the only segment of a trail.
func segment(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log", "*.db"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	return names[0]
}

// A trail whose files are gone lets no call through.
func TestLostTrailLetsNothingThrough(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trail")
	trail := open(t, dir, audit.Config{})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	select {
	case <-trail.Failed():
	case <-time.After(30 * time.Second):
		t.Fatal("nobody notices")
	}
	if _, err := trail.Forward(pay); !errors.Is(err, decisionlog.ErrFailed) {
		t.Error(err)
	}
	if trail.Err() == nil {
		t.Error("it does not say why")
	}
}

// Names that clients choose make no entry long, and none another.
func TestNamesAreBounded(t *testing.T) {
	dir := t.TempDir()
	trail := open(t, dir, audit.Config{})
	name := "a\"}\n{\"index\":3,\"kind\":\"gateway.outcome\"}\u2028" + strings.Repeat("x", 10_000)
	if err := trail.Refused(call("crm", "tools/call\xff", name), "unknown_tool"); err != nil {
		t.Fatal(err)
	}
	closeTrail(t, trail)
	all := read(t, dir)
	if len(all) != 2 || len(all[1].request.Tool) > 600 || !strings.HasPrefix(all[1].request.Tool, "a\"}\n{") {
		t.Errorf("%q", story(all))
	}
}

// BenchmarkTrail measures both entries of a call, alone and among others.
func BenchmarkTrail(b *testing.B) {
	trail, err := audit.Open(b.TempDir(), audit.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer trail.Close()
	both := func() error {
		id, err := trail.Forward(pay)
		return errors.Join(err, trail.Done(id, audit.Succeeded, ""))
	}
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if err := both(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("among 64", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := both(); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// Old segments are removed, and the rest can still be verified and continued.
func TestOldEntriesArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		trail, err := audit.Open(dir, audit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		id := forward(t, trail, pay)
		for range 4 { // a segment of its own each day, which begins with a multiple of 256 entries
			for range 256 {
				if err := trail.Refused(pay, "denied"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(25 * time.Hour)
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		trail.Prune(ctx, audit.Retention{Age: 30 * time.Hour}, slog.New(slog.DiscardHandler))
		closeTrail(t, trail)
		report, err := decisionlog.Verify(t.Context(), dir)
		if err != nil || report.Pruned == 0 {
			t.Fatalf("%+v, %v", report, err)
		}
		trail = open(t, dir, audit.Config{})
		if u := trail.Unknown(); len(u) != 1 || u[0].ID != id {
			t.Errorf("the call whose entry was removed: %+v", u)
		}
		closeTrail(t, trail)
	})
}

// A trail that has outgrown its size keeps the entries that limits of calls count after a
// restart. Otherwise a caller who makes many entries would lift them.
func TestPruningKeepsWhatLimitsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail, err := audit.Open(t.TempDir(), audit.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer closeTrail(t, trail)
		for range 4 {
			forward(t, trail, pay)
			for range 255 {
				if err := trail.Refused(pay, "denied"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(25 * time.Hour)
		}
		for _, test := range []struct {
			keep time.Duration
			want int
		}{{60 * time.Hour, 2}, {0, 0}} {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			trail.Prune(ctx, audit.Retention{Bytes: 1, Keep: func() time.Duration { return test.keep }}, slog.New(slog.DiscardHandler))
			stop()
			counted := 0
			for _, err := range trail.Forwarded(t.Context(), time.Now().Add(-60*time.Hour)) {
				if err != nil {
					t.Fatal(err)
				}
				counted++
			}
			if counted != test.want {
				t.Errorf("%s: %d calls are counted, want %d", test.keep, counted, test.want)
			}
		}
	})
}
