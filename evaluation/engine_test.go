package evaluation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// openLog opens a log in dir. When the test ends, it closes and verifies it.
func openLog(t testing.TB, dir string, c decisionlog.Config) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := decisionlog.Verify(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	return l
}

// engine returns an engine on which the store is in force, and its log. Its
// clock begins at now and is 1.5 milliseconds later at each look.
func engine(t testing.TB, store string, c evaluation.Config) (*evaluation.Engine, *decisionlog.Log) {
	t.Helper()
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	looks := 0
	c.Now = func() time.Time {
		looks++
		return now.Add(time.Duration(looks-1) * 1500 * time.Microsecond)
	}
	e := evaluation.NewEngine(l, c)
	load(t, e, store)
	looks = 0
	return e, l
}

// load puts a store into force.
func load(t testing.TB, e *evaluation.Engine, store string) {
	t.Helper()
	if _, err := e.Reload(t.Context(), evaluation.Change{Archive: archive(store), Cause: "start"}); err != nil {
		t.Fatal(err)
	}
}

// inForce returns the revision that decides.
func inForce(t testing.TB, e *evaluation.Engine) string {
	t.Helper()
	all := e.Snapshots()
	if all == nil {
		t.Fatal("nothing is in force")
	}
	return all.Revision()
}

// export returns the lines of the log, but for those of reloads, which have
// ids of their own.
func export(t testing.TB, l *decisionlog.Log) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := l.Export(context.Background(), &out, 0, -1); err != nil {
		t.Fatal(err)
	}
	var lines []byte
	for line := range bytes.Lines(out.Bytes()) {
		if !bytes.Contains(line, []byte(`"kind":"reload"`)) {
			lines = append(lines, line...)
		}
	}
	return lines
}

func entries(t testing.TB, l *decisionlog.Log) []decisionlog.Entry {
	t.Helper()
	var all []decisionlog.Entry
	for line := range bytes.Lines(export(t, l)) {
		var e decisionlog.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// batch reads a batch as the service does.
func batch(t testing.TB, body string) *authzen.EvaluationsRequest {
	t.Helper()
	var req authzen.EvaluationsRequest
	if err := authzen.Unmarshal([]byte(body), &req); err != nil {
		t.Fatalf("%s\n%v", body, err)
	}
	return &req
}

func authorization(t testing.TB, body string) *authzen.AuthorizeRequest {
	t.Helper()
	var req authzen.AuthorizeRequest
	if err := authzen.Unmarshal([]byte(body), &req); err != nil {
		t.Fatalf("%s\n%v", body, err)
	}
	return &req
}

// asked are one request of each kind.
type asked struct {
	single *authzen.EvaluationRequest
	batch  *authzen.EvaluationsRequest
	shape  *authzen.AuthorizeRequest
}

func askedIn(t testing.TB) asked {
	body := question("user alice", "read", "doc 1")
	return asked{
		single: request(t, body),
		batch:  batch(t, `{"evaluations":[`+body+`]}`),
		shape:  authorization(t, `{"tenant_id":"acme","actor":{"actor_id":"alice","actor_type":"user"},"action":"read","resource":{"type":"doc","id":"1"}}`),
	}
}

// answersNone checks that the engine answers no request of any kind, and why.
func answersNone(t testing.TB, e *evaluation.Engine, ctx context.Context, why error) {
	t.Helper()
	a := askedIn(t)
	if d, err := e.Evaluate(ctx, evaluation.Call{}, a.single); d != nil || !errors.Is(err, why) {
		t.Errorf("Evaluate: %v, %v, want %v", d, err, why)
	}
	if d, err := e.Evaluations(ctx, evaluation.Call{}, a.batch); d != nil || !errors.Is(err, why) {
		t.Errorf("Evaluations: %v, %v, want %v", d, err, why)
	}
	if d, err := e.Authorize(ctx, evaluation.Call{}, a.shape); d != nil || !errors.Is(err, why) {
		t.Errorf("Authorize: %v, %v, want %v", d, err, why)
	}
}

const open = `@id("all") permit (principal, action, resource);`

func TestNothingInForce(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	e := evaluation.NewEngine(l, evaluation.Config{})
	if s := e.Snapshots(); s != nil {
		t.Errorf("revision %s is in force", s.Revision())
	}
	answersNone(t, e, t.Context(), snapshot.ErrNoSnapshot)
	if got := export(t, l); len(got) > 0 {
		t.Errorf("the log has\n%s", got)
	}
}

// What decides is in the log before it decides.
func TestReload(t *testing.T) {
	e, l := engine(t, open, evaluation.Config{})
	first := inForce(t, e)
	kept, err := l.ReadArchive(first)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte(archive(open)), kept); diff != "" {
		t.Errorf("archive of the revision (-want +got):\n%s", diff)
	}

	load(t, e, `@id("none") forbid (principal, action, resource);`)
	d, err := e.Evaluate(t.Context(), evaluation.Call{}, askedIn(t).single)
	if err != nil || d.Decision {
		t.Errorf("decided %v, %v", d, err)
	}
	if got := entries(t, l)[0].Revision; got != inForce(t, e) || got == first {
		t.Errorf("recorded revision %s", got)
	}
}

// A store with a fault, or one that cannot be kept, changes nothing.
func TestReloadThatFails(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, decisionlog.Config{})
	e := evaluation.NewEngine(l, evaluation.Config{})
	load(t, e, open)
	first := inForce(t, e)
	fails := func(why, store string) error {
		t.Helper()
		_, err := e.Reload(t.Context(), evaluation.Change{Archive: archive(store), Cause: "change"})
		if err == nil || inForce(t, e) != first {
			t.Errorf("%s: error %v, revision %s is in force", why, err, inForce(t, e))
		}
		return err
	}

	var found faults.List
	if err := fails("a fault", open+" permit"); !errors.As(err, &found) {
		t.Errorf("a fault is a %T", err)
	}
	revisions := filepath.Join(dir, "archive", "revisions")
	if err := os.Rename(revisions, revisions+".away"); err != nil {
		t.Fatal(err)
	}
	fails("not kept", open+" // more")
	if err := os.Rename(revisions+".away", revisions); err != nil {
		t.Fatal(err)
	}
	load(t, e, open+" // more")
	if inForce(t, e) == first {
		t.Error("the first revision is still in force")
	}
}

// recorded is a store for the entries of testdata/entries.jsonl.
const recorded = `
@id("write") @approval("sre") @reason_user("Somebody has to look at it.")
permit (principal, action == Action::"write", resource is doc);
@id("read") @obligation_notification("{\"to\":\"soc\",\"body\":\"read\"}") @reason_admin("Reading is open.")
permit (principal, action == Action::"read", resource is doc);
@id("level") permit (principal, action == Action::"read", resource) when { principal.level > 3 };
@id("closed") forbid (principal, action == Action::"erase", resource) when { resource.closed };
`

// TestEntries records a request of each kind and compares what is exported.
func TestEntries(t *testing.T) {
	e, l := engine(t, recorded, evaluation.Config{
		ItemError: func(err error) *authzen.Error { return &authzen.Error{Status: 400, Message: err.Error()} },
	})
	n := 0
	call := func() evaluation.Call {
		n++
		return evaluation.Call{
			ID: fmt.Sprintf("decision-%d", n), Tenant: "acme", Caller: "gateway", RequestID: fmt.Sprintf("request-%d", n), TraceID: "4bf92f35",
		}
	}
	var answers []any
	answered := func(answer any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	evaluate := func(body string) {
		t.Helper()
		answered(e.Evaluate(t.Context(), call(), request(t, body)))
	}
	evaluate(question(`user alice {"level":1.0,"n":"\u0061"}`, `read`, `doc 1`, `{"x": [1, 2]}`))
	evaluate(question(`user alice`, `write {"force":true}`, `doc 1 {"labels":{"b":1,"a":null}}`))
	evaluate(question(`user alice`, `write`, `doc 1`, `{"supported_obligations":["custom"],"approval":{"id":"claimed"}}`))
	evaluate(question(`user alice`, `erase`, `doc 1`))
	evaluate(question(`user alice`, `paint`, `doc 1`))
	answered(e.Evaluations(t.Context(), call(), batch(t, `{
		"subject": {"type": "user", "id": "alice"},
		"action": {"name": "read"},
		"context": {"supported_obligations": ["custom"]},
		"evaluations": [
			{"resource": {"type": "doc", "id": "1"}},
			{"resource": {"type": "doc", "id": "2"}, "action": {"name": "write"}},
			{"resource": {"type": "doc", "id": "3"}, "context": {"v": [null]}},
			{}
		]}`)))
	answered(e.Evaluations(t.Context(), call(), batch(t, `{"evaluations":[],"resource":{"type":"doc","id":"1"},"subject":{"type":"user","id":"bob"},"action":{"name":"read"}}`)))
	answered(e.Authorize(t.Context(), call(), authorization(t, `{
		"tenant_id": "umbrella",
		"actor": {"actor_id": "agent-7", "actor_type": "agent", "roles": ["writer"], "department_id": "d1"},
		"action": "write",
		"resource": {"type": "doc", "id": "1", "labels": {"impact": "write"}},
		"purpose": "Resolve issue 555"}`)))

	got := export(t, l)
	for _, answer := range answers {
		line, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		got = append(append(got, line...), '\n')
	}
	const golden = "testdata/entries.jsonl"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("entries, then answers (-want +got):\n%s", diff)
	}
}

// A request that cannot be read is not decided, and leaves no entry.
func TestRefusedRequestIsNoDecision(t *testing.T) {
	e, l := engine(t, open, evaluation.Config{})
	var invalid *authzen.ValidationError
	d, err := e.Evaluate(t.Context(), evaluation.Call{}, request(t, question("user alice", "read", "doc 1", `{"v":[null]}`)))
	if d != nil || !errors.As(err, &invalid) {
		t.Errorf("Evaluate: %v, %v", d, err)
	}
	single, err := e.Evaluations(t.Context(), evaluation.Call{}, batch(t, `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"}}`))
	if single != nil || !errors.As(err, &invalid) || invalid.Path != "/resource" {
		t.Errorf("Evaluations: %v, %v", single, err)
	}
	if got := export(t, l); len(got) > 0 {
		t.Errorf("the log has\n%s", got)
	}
}

// Ids are made where the edge has none, and sort by time.
func TestDecisionIDs(t *testing.T) {
	e, l := engine(t, open, evaluation.Config{})
	for range 20 {
		if _, err := e.Evaluate(t.Context(), evaluation.Call{}, askedIn(t).single); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, entry := range entries(t, l) {
		ids = append(ids, entry.ID)
	}
	if len(ids) != 20 || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != 20 {
		t.Errorf("ids %q", ids)
	}
}

// Without an entry there is no answer.
func TestNoEntryNoAnswer(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		e, l := engine(t, open, evaluation.Config{})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		answersNone(t, e, t.Context(), decisionlog.ErrUnavailable)
	})
	t.Run("cancelled", func(t *testing.T) {
		e, _ := engine(t, open, evaluation.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		answersNone(t, e, ctx, context.Canceled)
	})
	t.Run("taken away", func(t *testing.T) {
		dir := t.TempDir()
		l, err := decisionlog.Open(dir, decisionlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		e := evaluation.NewEngine(l, evaluation.Config{})
		load(t, e, open)
		if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
		answersNone(t, e, t.Context(), decisionlog.ErrFailed)
		if err := l.Close(); !errors.Is(err, decisionlog.ErrFailed) {
			t.Errorf("close: %v", err)
		}
	})
	t.Run("full", func(t *testing.T) {
		dir := t.TempDir()
		l, err := decisionlog.Open(dir, decisionlog.Config{MaxSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		e := evaluation.NewEngine(l, evaluation.Config{})
		load(t, e, open)
		long := request(t, question("user alice", "read", "doc 1", `{"x":["`+strings.Repeat(strings.Repeat("x", 8000)+`","`, 8)+`"]}`))
		answered := 0
		for range 100 {
			d, err := e.Evaluate(t.Context(), evaluation.Call{}, long)
			if err == nil {
				answered++
				continue
			}
			if d != nil || !errors.Is(err, decisionlog.ErrUnavailable) {
				t.Fatalf("a full log answers %v, %v", d, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := len(entries(t, openLog(t, dir, decisionlog.Config{}))); got != answered || answered == 0 || answered == 100 {
			t.Errorf("%d answers, %d entries", answered, got)
		}
	})
}
