package enforce

import (
	"errors"
	"fmt"
	"slices"

	"github.com/policy-service/policy-service/obligations/result"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Errors of obligations that narrow the token of a call.
var (
	errNarrows  = errors.New("the token for the server cannot be narrowed")
	errDisjoint = errors.New("no scope is left")
)

// narrowed returns the scopes to which the permits of an answer narrow the token of a
// call: those of all the obligations. It is nil without such an obligation.
func narrowed(call *Call, a *Answer) (scopes []string, err error) {
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if !d.Decision || d.Context == nil {
			continue
		}
		for _, o := range d.Context.Obligations {
			if o.Type != authzen.ObligationCustom {
				continue
			}
			rule, err := result.Parse(o.Properties)
			if err != nil || rule.Action != result.Scopes {
				continue // resultRules reports it
			}
			if scopes = both(scopes, rule.Scopes); !call.Narrows {
				return nil, fmt.Errorf("%w: %s: %w", client.ErrObligation, o.ID, errNarrows)
			}
			if len(scopes) == 0 {
				return nil, fmt.Errorf("%w: %s: %w", client.ErrObligation, o.ID, errDisjoint)
			}
		}
	}
	return scopes, nil
}

// both returns the scopes that are in both lists; nil is no list.
func both(scopes, others []string) (all []string) {
	if scopes == nil {
		return slices.Clone(others)
	}
	return slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return !slices.Contains(others, s) })
}
