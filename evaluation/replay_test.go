package evaluation_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// replayed is the store that the logged decisions of these tests were made by.
const replayed = `
@id("readers") permit (principal in Role::"reader", action == Action::"read", resource);
@id("notified") @obligation_notification("{\"to\":\"ops\",\"body\":\"b\"}") permit (principal, action == Action::"write", resource);
@id("in-the-morning") permit (principal, action == Action::"open", resource) when { context.now < datetime("2026-11-20T12:00:00Z") };
@id("closed") forbid (principal, action, resource) when { resource has closed && resource.closed };
-- config.yaml --
clock: now
-- entities.json --
[{"uid": {"type": "user", "id": "alice"}, "attrs": {}, "parents": [{"type": "Role", "id": "reader"}]}]
`

// A logged is an engine and its log.
type logged struct {
	t      testing.TB
	log    *decisionlog.Log
	engine *evaluation.Engine
	now    time.Time
}

func newLogged(t testing.TB, store string) *logged {
	t.Helper()
	log, err := decisionlog.Open(t.TempDir(), decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	l := &logged{t: t, log: log, now: now}
	l.engine = evaluation.NewEngine(log, evaluation.Config{Now: func() time.Time { return l.now }})
	l.load(store)
	return l
}

func (l *logged) load(store string) {
	l.t.Helper()
	if _, err := l.engine.Reload(l.t.Context(), evaluation.Change{Archive: archive(store)}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) ask(body string) {
	l.t.Helper()
	if _, err := l.engine.Evaluate(l.t.Context(), evaluation.Call{}, request(l.t, body)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) askBatch(body string) {
	l.t.Helper()
	var batch authzen.EvaluationsRequest
	if err := authzen.Unmarshal([]byte(body), &batch); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.engine.Evaluations(l.t.Context(), evaluation.Call{}, &batch); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) authorize(tenant string) {
	l.t.Helper()
	var req authzen.AuthorizeRequest
	body := fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_id":"alice","actor_type":"user","roles":[]},"action":"read","resource":{"type":"doc","id":"1","labels":{}},"purpose":"p"}`, tenant)
	if err := authzen.Unmarshal([]byte(body), &req); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.engine.Authorize(l.t.Context(), evaluation.Call{}, &req); err != nil {
		l.t.Fatal(err)
	}
}

// lines are those of the log, changed.
func (l *logged) lines(old, new string) [][]byte {
	l.t.Helper()
	var out bytes.Buffer
	if _, err := l.log.Export(l.t.Context(), &out, 0, -1); err != nil {
		l.t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(bytes.ReplaceAll(out.Bytes(), []byte(old), []byte(new))), []byte("\n"))
}

func (l *logged) replay(store string, lines [][]byte) *replay.Report {
	l.t.Helper()
	candidate, err := snapshot.CompileStore(archive(store))
	if err != nil {
		l.t.Fatal(err)
	}
	replay := replay.New(candidate, l.log.ReadArchive)
	for _, line := range lines {
		if err := replay.Add(line); err != nil {
			l.t.Fatal(err)
		}
	}
	return replay.Report()
}

// decisions logs one of each kind, at two times.
func (l *logged) decisions() {
	for _, at := range []time.Time{now, now.Add(6 * time.Hour)} {
		l.now = at
		l.ask(question("user alice", "read", "doc 1"))
		l.ask(question("user bob", "read", "doc 1"))
		l.ask(question("user bob", "write", "doc 1"))
		l.ask(question("user bob", "open", "doc 1"))
		l.ask(question("user alice", "read", `doc 1 {"closed":true}`))
		l.ask(question("user alice", "read", `doc 1 {"closed":"perhaps"}`))
		l.askBatch(`{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"evaluations":[
			{"action":{"name":"read"}},{"action":{"name":"erase"}},{"action":{}},{"action":{"name":"write"}}]}`)
	}
}

func TestReplay(t *testing.T) {
	for _, tt := range []struct {
		name     string
		old, new string // in the store
		want     []string
		widens   bool
	}{
		{"nothing", "", "", nil, false},
		{"a comment", `@id("closed")`, "// closed\n" + `@id("closed")`, nil, false},
		{"a permit for all", `principal in Role::"reader"`, "principal", []string{"2 deny_to_allow readers user::bob"}, true},
		{"a permit less", `Role::"reader", action == Action::"read"`, `Role::"reader", action == Action::"none"`, []string{"4 allow_to_deny without readers user::alice"}, false},
		{"a forbid more", `action, resource) when { resource has closed`, `action, resource) when { principal == user::"bob" || resource has closed`,
			[]string{"3 allow_to_deny closed user::bob"}, false},
		{"a notification less", `@obligation_notification("{\"to\":\"ops\",\"body\":\"b\"}")`, "",
			[]string{"2 obligation_lost notified user::alice", "2 obligation_lost notified user::bob"}, true},
		{"a notification to others", `\"ops\"`, `\"all\"`,
			[]string{"2 obligation_lost notified user::alice", "2 obligation_lost notified user::bob"}, true},
		{"a notification with another member", `\"body\":\"b\"`, `\"body\":\"b\",\"severity\":\"low\"`,
			[]string{"2 obligation_lost notified user::alice", "2 obligation_lost notified user::bob"}, true},
		{"a notification in the form of today", `\"ops\"`, `[\"ops\"]`, nil, false},
		{"the time", `2026-11-20T12:00:00Z`, `2026-11-20T18:00:00Z`, []string{"1 deny_to_allow in-the-morning user::bob"}, true},
		{"an error", `resource.closed }`, `resource.closed && resource.really }`, []string{"2 new_error closed user::alice"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLogged(t, replayed)
			l.decisions()
			report := l.replay(strings.Replace(replayed, tt.old, tt.new, 1), l.lines("", ""))
			var got []string
			for _, f := range report.Flips {
				got = append(got, fmt.Sprintf("%d %s %s %s", f.Count, f.Effect, f.Policy, f.Subject))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("flips (-want +got):\n%s", diff)
			}
			if report.Widens() != tt.widens || len(report.Unfaithful) > 0 || report.Decisions != 20 {
				t.Errorf("widens %t, unfaithful %v, %d decisions", report.Widens(), report.Unfaithful, report.Decisions)
			}
			var text strings.Builder
			if err := report.Text(&text); err != nil || len(tt.want) > 0 && !strings.Contains(text.String(), report.Flips[0].Examples[0]) {
				t.Errorf("%v:\n%s", err, &text)
			}
		})
	}
}

// Every entry is decided by the policies it names, whichever came after it.
func TestReplayRevisions(t *testing.T) {
	l := newLogged(t, replayed)
	l.decisions()
	for n := range 20 { // more than are kept compiled
		l.load(strings.Replace(replayed, `Role::"reader"`, fmt.Sprintf(`Role::"reader-%d"`, n), 1))
		l.decisions()
	}
	report := l.replay(strings.Replace(replayed, `Role::"reader"`, `Role::"reader-19"`, 1), l.lines("", ""))
	if len(report.Unfaithful) > 0 || report.Decisions != 21*20 || len(report.Flips) != 1 || report.Flips[0].Count != 4 {
		t.Errorf("report %+v", report)
	}
}

// The tenant's policies decide, and an unknown tenant is denied again.
func TestReplayTenants(t *testing.T) {
	l := newLogged(t, tenanted)
	for _, tenant := range []string{"acme", "umbrella", "initech"} {
		l.authorize(tenant)
	}
	if report := l.replay(tenanted, l.lines("", "")); len(report.Unfaithful)+len(report.Flips) > 0 || report.Decisions != 3 {
		t.Errorf("report %+v", report)
	}
	open := tenanted + "-- tenants/initech/own.cedar --\n@id(\"all\") permit (principal, action, resource);\n"
	report := l.replay(open, l.lines("", ""))
	if len(report.Flips) != 1 || report.Flips[0].Policy != "all" || !report.Widens() {
		t.Errorf("report %+v", report)
	}
}

// An entry that its own policies do not give is not compared, and told.
func TestReplayUnfaithful(t *testing.T) {
	for name, change := range map[string][2]string{
		"another decision": {`"decision":true,"policies":["readers"]`, `"decision":false`},
		"another policy":   {`"readers"`, `"leaders"`},
		"another subject":  {`"id":"alice"`, `"id":"bob"`},
		"an hour later":    {`T09:00:00Z`, `T13:00:00Z`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogged(t, replayed)
			l.decisions()
			if report := l.replay(replayed, l.lines(change[0], change[1])); len(report.Unfaithful) == 0 {
				t.Error("it is not noticed")
			}
		})
	}
}

// What is masked is decided again where no policy reads it: those that decided,
// which must come to what was logged, and then the candidate.
func TestReplayMasked(t *testing.T) {
	l := newLogged(t, replayed)
	l.ask(question("user alice", "read", "doc 1", `{"password":"x"}`))
	l.ask(question("user alice", "read", "doc 1"))
	l.askBatch(`{"action":{"name":"read"},"resource":{"type":"doc","id":"1"},"context":{"token":"y"},
		"evaluations":[{"subject":{"type":"user","id":"alice"}},{"subject":{"type":"user","id":"bob"},"context":{"password":"z"}}]}`)
	check := func(store string, masked, decidedMasked, decisions, flips int) *replay.Report {
		t.Helper()
		report := l.replay(store, l.lines("", ""))
		if report.Masked != masked || report.DecidedMasked != decidedMasked || report.Decisions != decisions || len(report.Unfaithful) > 0 || len(report.Flips) != flips {
			t.Errorf("report %+v", report)
		}
		return report
	}
	check(replayed, 0, 2, 4, 0)
	check(`@id("nobody") forbid (principal, action, resource);`, 0, 2, 4, 1)
	report := check(replayed+"-- b.cedar --\n"+`@id("by-password") permit (principal, action, resource) when { context has password };`, 2, 0, 1, 0)
	want := []*replay.NotReplayable{{Hidden: replay.Hidden{Path: "/context/password", Policy: "by-password"}, Count: 2, Examples: report.NotReplayable[0].Examples}}
	if diff := cmp.Diff(want, report.NotReplayable); diff != "" || len(report.NotReplayable[0].Examples) != 2 {
		t.Errorf("not replayable (-want +got):\n%s", diff)
	}
	var page strings.Builder
	if err := report.Text(&page); err != nil || !strings.Contains(page.String(), "2 entries are masked where it counts, left out\n  2  /context/password  by-password  ") {
		t.Errorf("%v\n%s", err, page.String())
	}

	// A masked entry that was changed is found all the same.
	if report := l.replay(replayed, l.lines(`"decision":true`, `"decision":false`)); len(report.Unfaithful) != 3 {
		t.Errorf("report %+v", report)
	}
}

// TestReplayMaskedElsewhere holds that an entry is decided again whose request
// alone has a masked id, and is left out where a masked secret was filled into
// an obligation.
func TestReplayMaskedElsewhere(t *testing.T) {
	const token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.dozjgNryP4J3"
	const store = `@id("told") @obligation_notification("{\"to\":\"soc\",\"body\":\"{{resource.id}} was read\"}") permit (principal, action, resource);`
	l := newLogged(t, store)
	call := evaluation.Call{RequestID: token}
	if _, err := l.engine.Evaluate(t.Context(), call, request(t, question("user alice", "read", "doc 1"))); err != nil {
		t.Fatal(err)
	}
	l.ask(question("user alice", "read", "doc "+token))
	lines := l.lines("", "")
	if text := bytes.Join(lines, nil); bytes.Contains(text, []byte(token)) || !bytes.Contains(text, []byte(`"/obligations/0/properties/body"`)) {
		t.Errorf("%s", text)
	}
	if report := l.replay(store, lines); report.Decisions != 1 || report.Masked != 1 || len(report.Unfaithful) > 0 {
		t.Errorf("report %+v", report)
	}
}

// TestReplayIsFaithful replays random decisions by what decided them: they are
// the same, all of them.
func TestReplayIsFaithful(t *testing.T) {
	l := newLogged(t, replayed)
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	for range 500 {
		l.now = now.Add(time.Duration(r.Int64N(int64(24 * time.Hour))))
		l.ask(question(pick("user alice", "user bob", "agent 7", `user x {"a":1.5}`), pick("read", "write", "open", "erase"),
			pick("doc 1", `doc 2 {"closed":true}`, `doc 3 {"closed":1}`, `doc 4 {"closed":null,"b":["x","y"]}`), pick(``, `{"a":1}`, `{"supported_obligations":["notification"]}`)))
	}
	report := l.replay(replayed, l.lines("", ""))
	if report.Decisions != 500 || len(report.Unfaithful) > 0 || len(report.Flips) > 0 {
		t.Errorf("report %+v", report)
	}
}
