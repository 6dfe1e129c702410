package enforce

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// AccessDenied is the message of a denial of which the policies say nothing.
const AccessDenied = "access denied"

// A Checker turns answers of the PDP into permits and refusals. It is safe for
// concurrent use.
type Checker struct {
	obligations client.Obligations
	refused     Denial
}

// NewChecker returns a Checker that discharges these obligations.
// Refusals have the codes of refused.
func NewChecker(obligations client.Obligations, refused Denial) *Checker {
	return &Checker{obligations, refused.withDefaults()}
}

// Present returns a refusal as its client gets it.
func (k *Checker) Present(r *Refusal) *Refusal { return k.refused.present(r) }

func (k *Checker) denial(q *Question, evaluationID string) *Refusal {
	code := k.refused.Code
	if q.OlderDialect {
		code = k.refused.OlderCode
	}
	return &Refusal{Code: code, Status: k.refused.Status, Message: AccessDenied, Data: Data{Reason: ReasonDenied, EvaluationID: evaluationID}}
}

// Permitted carries out the obligations of an answer that has nothing but
// permits. Its error is a refusal, with the evaluations that were denied, by
// number, where people may lift that by approving each of them. Obligations of
// denials are carried out all the same.
func (k *Checker) Permitted(ctx context.Context, call *Call, q *Question, a *Answer) (denials []int, err error) {
	no := denied(a)
	for _, i := range no {
		_, _ = k.obligations.Discharge(ctx, &a.Decisions[i]) // it is a denial either way
	}
	if no != nil || len(a.Decisions) == 0 {
		denials, refusal := k.judge(call, q, a)
		return denials, refusal
	}
	if refusal := k.unauthorized(call, q, a); refusal != nil {
		return nil, refusal
	}
	for i := range a.Decisions {
		if granted, err := k.obligations.Discharge(ctx, &a.Decisions[i]); !granted {
			return nil, k.unmet(q, a, err)
		}
	}
	onResult, err := resultRules(call, a)
	if err != nil {
		return nil, k.unmet(q, a, err)
	}
	if call.Scopes, err = narrowed(call, a); err != nil {
		return nil, k.unmet(q, a, err)
	}
	call.Results = call.Results.And(onResult)
	return nil, nil
}

// denied returns the evaluations that an answer denies, by number.
func denied(a *Answer) (all []int) {
	for i := range a.Decisions {
		if !a.Decisions[i].Decision {
			all = append(all, i)
		}
	}
	return all
}

// judge returns the refusal of a call with this answer, nil for none, and
// carries out nothing. It returns the denials where approvals of them are all
// that the call needs.
func (k *Checker) judge(call *Call, q *Question, a *Answer) ([]int, *Refusal) {
	denials := denied(a)
	switch {
	case len(a.Decisions) == 0:
		return nil, k.denial(q, a.EvaluationID)
	case denials == nil:
		if refusal := k.unauthorized(call, q, a); refusal != nil {
			return nil, refusal
		}
		return nil, k.unknownObligation(call, q, a)
	}
	if refusal := unaskableItem(a.Decisions); refusal != nil {
		refusal.Data.EvaluationID = a.EvaluationID
		return nil, refusal
	}
	refusal := k.denial(q, a.EvaluationID)
	final := slices.IndexFunc(denials, func(i int) bool { return !isRequestable(&a.Decisions[i]) && !needsCapability(&a.Decisions[i]) })
	lacking := slices.IndexFunc(denials, func(i int) bool { return needsCapability(&a.Decisions[i]) })
	decisive := &a.Decisions[denials[max(final, 0)]]
	refusal.Message, refusal.Why = reason(decisive), operatorReason(decisive)
	switch {
	case final >= 0:
		return nil, refusal
	case lacking >= 0: // a person's approval would not suffice
		return nil, k.capability(call, refusal, &a.Decisions[denials[lacking]])
	}
	if unmet := k.unknownObligation(call, q, a); unmet != nil {
		return nil, unmet
	}
	return denials, refusal
}

// unknownObligation returns the refusal of a call for an obligation of a permit
// that the gateway does not carry out, or nil.
func (k *Checker) unknownObligation(call *Call, q *Question, a *Answer) *Refusal {
	for i := range a.Decisions {
		if err := k.unknown(&a.Decisions[i]); a.Decisions[i].Decision && err != nil {
			return k.unmet(q, a, err)
		}
	}
	if _, err := resultRules(call, a); err != nil {
		return k.unmet(q, a, err)
	}
	if _, err := narrowed(call, a); err != nil {
		return k.unmet(q, a, err)
	}
	return nil
}

// isRequestable reports whether a person may lift a denial. What could not be
// decided is nobody's to lift.
func isRequestable(d *authzen.Decision) bool {
	return d.Context != nil && d.Context.AccessRequest != nil && d.Context.Error == nil
}

// reason is what the policies say of a denial to the caller.
func reason(d *authzen.Decision) string {
	if d.Context == nil {
		return AccessDenied
	}
	return cmp.Or(d.Context.ReasonUser["en"], AccessDenied)
}

// unknown reports an obligation of a type that the gateway does not carry out.
func (k *Checker) unknown(d *authzen.Decision) error {
	if d.Context == nil {
		return nil
	}
	for _, o := range d.Context.Obligations {
		if k.obligations[o.Type] == nil {
			return fmt.Errorf("%w: %s: the gateway does not carry out the obligation %q", client.ErrObligation, o.ID, o.Type)
		}
	}
	return nil
}

// unmet refuses a call for an obligation of a permit.
func (k *Checker) unmet(q *Question, a *Answer, err error) *Refusal {
	refusal := k.denial(q, a.EvaluationID)
	refusal.Data.Reason, refusal.Message, refusal.Why = ReasonObligation, "an obligation of the permit could not be carried out", err.Error()
	return refusal
}
