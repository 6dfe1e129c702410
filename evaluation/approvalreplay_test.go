package evaluation_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/replay"
)

// The log keeps the approval that stood, so that what it allowed is decided the
// same again, alone and in a batch, and a candidate that would not honour it is
// seen to narrow.
func TestReplayWithApprovals(t *testing.T) {
	l := newLogged(t, approvalStore)
	l.engine = evaluation.NewEngine(l.log, evaluation.Config{Approvals: &desk{}, Offer: offers})
	l.load(approvalStore)
	for _, claim := range []string{"good", "raced", "approval_expired"} {
		l.ask(question("user alice", "wait", "doc 1", fmt.Sprintf(`{"approval":%q}`, claim)))
		l.ask(question("user alice", "never", "doc 1", fmt.Sprintf(`{"approval":%q}`, claim)))
	}
	l.askBatch(`{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"},"action":{"name":"wait"},"evaluations":[
		{"context":{"approval":"good"}}, {}, {"context":{"approval":"raced"}}, {"context":{"approval":"good"}}]}`)
	same := l.replay(approvalStore, l.lines("", ""))
	if len(same.Unfaithful)+len(same.Flips) > 0 || same.Decisions != 10 {
		t.Errorf("%d decisions, unfaithful %v, flips %v", same.Decisions, same.Unfaithful, same.Flips)
	}
	other := l.replay(strings.ReplaceAll(approvalStore, `@approval("sre")`, `@approval("lawyers")`), l.lines("", ""))
	denied := 0
	for _, f := range other.Flips {
		if f.Effect == replay.EffectDenies {
			denied += f.Count
		}
	}
	if denied != 3 || other.Widens() {
		t.Errorf("%d permits are denied, widening %v: %v", denied, other.Widens(), other.Flips)
	}

	// Without the approval that it keeps, the log would not be believed.
	for _, line := range l.lines("", "") {
		if strings.Contains(string(line), `"approval":{"id"`) && strings.Contains(string(line), `"decision":true`) {
			forgotten := l.replay(approvalStore, l.lines(`"approval":{"id"`, `"approvals":{"id"`))
			if len(forgotten.Unfaithful) == 0 {
				t.Error("a permit by an approval that is not there is believed")
			}
			return
		}
	}
	t.Error("the log has no permit with its approval")
}
