package evaluation_test

import (
	"errors"
	"testing"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A store that an accident could have made does not come into force, unless
// the operator says that policies may go.
func TestGuards(t *testing.T) {
	const (
		permits = `@id("a") permit (principal, action, resource);` + "\n" + `@id("b") permit (principal, action, resource);` + "\n"
		forbid  = `@id("c") forbid (principal, action, resource);` + "\n"
		fourth  = `@id("d") permit (principal, action, resource);` + "\n"
		nothing = "// nothing\n"
	)
	for name, test := range map[string]struct {
		before, after string
		basic, strict error
	}{
		"the same":            {permits + forbid, permits + forbid, nil, nil},
		"more":                {forbid, permits + forbid, nil, nil},
		"half":                {permits + forbid + fourth, fourth + forbid, nil, nil},
		"less than half":      {permits + forbid, forbid, nil, evaluation.ErrShrunk},
		"no forbid any more":  {permits + forbid, permits, nil, evaluation.ErrShrunk},
		"no forbid as before": {permits, permits + fourth, nil, nil},
		"nothing any more":    {permits, nothing, evaluation.ErrEmptied, evaluation.ErrEmptied},
		"nothing as before":   {nothing, nothing, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for strict, want := range map[bool]error{false: test.basic, true: test.strict} {
				l := openLog(t, t.TempDir(), decisionlog.Config{})
				e := evaluation.NewEngine(l, evaluation.Config{GuardShrink: strict})
				load(t, e, test.before)
				decides := compile(t, test.after).Revision()
				if want != nil {
					decides = inForce(t, e)
				}
				change := evaluation.Change{Archive: archive(test.after), Cause: "change"}
				if _, err := e.Reload(t.Context(), change); !errors.Is(err, want) || inForce(t, e) != decides {
					t.Errorf("strict %t: %v, want %v; revision %s decides, want %s", strict, err, want, inForce(t, e), decides)
				}
				change.Shrink = true
				if _, err := e.Reload(t.Context(), change); err != nil {
					t.Errorf("strict %t, and policies may go: %v", strict, err)
				}
			}
		})
	}
}
