package evaluation_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// wider is replayed with a permit more, an obligation less and a policy that
// errs.
const wider = `
@id("everyone") permit (principal, action == Action::"read", resource);
@id("unnotified") permit (principal, action == Action::"write", resource);
@id("wrong") permit (principal, action == Action::"open", resource) when { resource.nothing };
`

func (l *logged) shadow(store string) {
	l.t.Helper()
	if _, err := l.engine.ReloadShadow(l.t.Context(), evaluation.Change{Archive: archive(store), Cause: "change"}); err != nil {
		l.t.Fatal(err)
	}
}

// last returns the last entry of the log.
func (l *logged) last() *decisionlog.Entry {
	l.t.Helper()
	var line bytes.Buffer
	if _, err := l.log.Export(l.t.Context(), &line, l.log.Head().Size-1, -1); err != nil {
		l.t.Fatal(err)
	}
	entry, err := replay.ReadEntry(line.Bytes())
	if err != nil {
		l.t.Fatal(err)
	}
	return entry
}

// A shadow decides what is asked, alone and in batches, and what it decides is
// in the log and nowhere else.
func TestShadow(t *testing.T) {
	l := newLogged(t, replayed)
	l.ask(question("user bob", "read", "doc 1"))
	if l.last().Shadow != nil {
		t.Error("without a shadow an entry has one")
	}
	l.shadow(wider)
	revision := l.engine.ShadowStatus().Revision
	for _, tt := range []struct {
		name, body string
		want       decisionlog.Result
		effect     replay.Effect
	}{
		{"allowed", question("user bob", "read", "doc 1"), decisionlog.Result{Decision: true, Policies: []string{"everyone"}}, replay.EffectAllows},
		{"by another policy", question("user alice", "read", "doc 1"), decisionlog.Result{Decision: true, Policies: []string{"everyone"}}, ""},
		{"an obligation less", question("user alice", "write", "doc 1", `{"supported_obligations":["notification"]}`), decisionlog.Result{Decision: true, Policies: []string{"unnotified"}}, replay.EffectLoses},
		{"an error", question("user alice", "open", "doc 1"), decisionlog.Result{Errors: []decisionlog.PolicyError{{Policy: "wrong", Message: "no such attribute"}}}, replay.EffectDenies},
	} {
		t.Run(tt.name, func(t *testing.T) {
			decision, err := l.engine.Evaluate(t.Context(), evaluation.Call{}, request(t, tt.body))
			if err != nil {
				t.Fatal(err)
			}
			alone, err := snapshot.Compile(archive(replayed))
			if err != nil {
				t.Fatal(err)
			}
			want, err := alone.Decide(request(t, tt.body), environment)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&authzen.Decision{Decision: want.Decision, Context: want.Context}, decision); diff != "" {
				t.Errorf("the answer is another (-want +got):\n%s", diff)
			}
			entry := l.last()
			if entry.Shadow == nil || entry.Shadow.Revision != revision {
				t.Fatalf("shadow = %v, want one of %s", entry.Shadow, revision)
			}
			got := entry.Shadow.Result
			for i := range got.Errors {
				got.Errors[i].Message = "no such attribute"
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("shadow (-want +got):\n%s", diff)
			}
			if effect := evaluation.ShadowEffect(entry.Result); effect != tt.effect {
				t.Errorf("effect = %q, want %q", effect, tt.effect)
			}
		})
	}
	l.askBatch(`{"subject":{"type":"user","id":"bob"},"resource":{"type":"doc","id":"1"},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"drop"}},{}]}`)
	items := l.last().Evaluations
	if s := items[0].Shadow; s == nil || !s.Decision || items[0].Decision {
		t.Errorf("item 0 has the shadow %v", s)
	}
	if s := items[1].Shadow; s == nil || s.Decision {
		t.Errorf("item 1 has the shadow %v", s)
	}
	if s := items[2].Shadow; s != nil {
		t.Errorf("an item that cannot be read has the shadow %v", s)
	}
	if files, err := l.log.ReadArchive(revision); err != nil || len(files) != 1 {
		t.Errorf("the archive of the shadow: %v, %v", files, err)
	}

	// It stands in nobody's way who decides again.
	report := l.replay(replayed, l.lines("", ""))
	if len(report.Unfaithful)+len(report.Flips) > 0 || report.Decisions != 8 {
		t.Errorf("%d decisions, unfaithful %v, flips %v", report.Decisions, report.Unfaithful, report.Flips)
	}
}

// Whatever is wrong with the shadow, the answer is the same.
func TestShadowFails(t *testing.T) {
	body := question("user alice", "read", "doc 1")
	for _, tt := range []struct {
		name  string
		harm  func(l *logged)
		error string
	}{
		{"it cannot read the request", func(l *logged) {
			l.shadow(`-- schema.cedarschema --
entity thing;
action look appliesTo { principal: [thing], resource: [thing] };
`)
		}, "schema"},
		{"it has tenants", func(l *logged) {
			l.shadow("-- tenants/acme/a.cedar --\n@id(\"a\") permit (principal, action, resource);\n")
		}, "unknown tenant"},
		{"it panics", func(l *logged) {
			if err := l.engine.BreakShadow(); err != nil {
				t.Fatal(err)
			}
		}, "panic: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLogged(t, replayed)
			tt.harm(l)
			decision, err := l.engine.Evaluate(t.Context(), evaluation.Call{}, request(t, body))
			if err != nil || !decision.Decision {
				t.Fatalf("%v, %v", decision, err)
			}
			s := l.last().Shadow
			if s == nil || s.Decision || len(s.Errors) != 1 || !strings.Contains(s.Errors[0].Message, tt.error) {
				t.Errorf("shadow = %+v, want an error with %q", s, tt.error)
			}
		})
	}
}

// What becomes of the shadow's store is in the log, and changes nothing else.
func TestReloadShadow(t *testing.T) {
	l := newLogged(t, replayed)
	inForce := l.engine.Status()
	check := func(decision bool, request string) {
		t.Helper()
		entry := l.last()
		var want, got map[string]string
		if err := json.Unmarshal([]byte(request), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(entry.Request, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" || entry.Kind != decisionlog.KindReload || entry.Decision != decision || entry.Revision != inForce.Revision {
			t.Errorf("entry %+v, request (-want +got):\n%s", entry, diff)
		}
		if diff := cmp.Diff(inForce, l.engine.Status()); diff != "" {
			t.Errorf("what is in force is another (-want +got):\n%s", diff)
		}
	}
	if _, err := l.engine.ReloadShadow(t.Context(), evaluation.Change{Archive: archive("permit"), Cause: "start"}); err == nil {
		t.Fatal("a store that does not compile is loaded")
	}
	check(false, `{"cause":"start","store":"shadow"}`)
	l.ask(question("user bob", "read", "doc 1"))
	if s := l.last().Shadow; s != nil {
		t.Errorf("without a shadow an entry has %v", s)
	}
	l.shadow(wider)
	revision := l.engine.ShadowStatus().Revision
	check(true, `{"cause":"change","store":"shadow","revision":"`+revision+`"}`)
	l.engine.ShadowFailed(t.Context(), "change", snapshot.ErrEmptied)
	check(false, `{"cause":"change","store":"shadow","revision":"`+revision+`"}`)
	if s := l.engine.ShadowStatus(); !s.Stale || s.Revision != revision {
		t.Errorf("status of the shadow: %+v", s)
	}
}

// An approval that stands stands for the shadow, too, and its items'
// obligations have the ids that the answer's would have.
func TestShadowWithApprovals(t *testing.T) {
	l := newLogged(t, approvalStore)
	l.engine = evaluation.NewEngine(l.log, evaluation.Config{Approvals: &desk{}, Offer: offers})
	l.load(approvalStore)
	l.shadow(approvalStore)
	for _, claim := range []string{"good", "raced", "approval_expired"} {
		l.askBatch(`{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"evaluations":[
			{"action":{"name":"wait"},"context":{"approval":"` + claim + `"}}, {"action":{"name":"never"}}]}`)
		for n, item := range l.last().Evaluations {
			shadow := item.Shadow
			item.Shadow, item.Approval = nil, nil
			if shadow == nil {
				t.Fatalf("%s: item %d has no shadow", claim, n)
			}
			if diff := cmp.Diff(item, shadow.Result); diff != "" {
				t.Errorf("%s: item %d is decided otherwise by the same policies (-in force +shadow):\n%s", claim, n, diff)
			}
		}
	}
}
