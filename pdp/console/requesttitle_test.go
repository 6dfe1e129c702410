package console_test

import (
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp/console"
)

// The title of the window is ours: an action cannot continue it, hide in it or fill it.
func TestTitlesAreNotForged(t *testing.T) {
	for action, want := range map[string]string{
		"tool.invoke":                 "Decide: tool.invoke",
		"run any · approved by carol": `Decide: "run any · approved by carol"`,
		"allow\u202e":                 `Decide: "allow\u{202E}"`,
		"":                            `Decide: ""`,
		strings.Repeat("a", 400):      "Decide: " + strings.Repeat("a", 59) + "…",
	} {
		if got := console.RequestTitle(action); got != want {
			t.Errorf("%.20q: %s, want %s", action, got, want)
		}
	}
}

// Only the call of a tool is called that. Another action on a tool has its own name in the sentence.
func TestOnlyCallsAreCalledRunning(t *testing.T) {
	for _, test := range []struct {
		resource, action string
		want             bool
	}{{"tool", "tool.invoke", true}, {"tool", "tools/call", true}, {"tool", "call", true}, {"tool", "recall", false}, {"tool", "delete", false}, {"tool", "tool.invoke ", false}, {"doc", "tools/call", false}} {
		if got := console.IsToolCall(test.resource, test.action); got != test.want {
			t.Errorf("%s on a %s: %t", test.action, test.resource, got)
		}
	}
}
