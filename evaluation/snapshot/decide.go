package snapshot

import (
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Outcome is a decision and its reasons.
type Outcome struct {
	Decision    bool
	Policies    []string // the determining policies, sorted
	Errors      []decisionlog.PolicyError
	Obligations []authzen.Obligation
	Context     *authzen.DecisionContext // for the PEP; nil for none
	Template    string                   // by which a person could lift a denial or has yet to approve; "" for none
	Capability  string                   // template of the capability that could lift a denial; "" for none
}

// Result returns the outcome as a decision log record.
func (o *Outcome) Result() decisionlog.Result {
	return decisionlog.Result{Decision: o.Decision, Policies: o.Policies, Errors: o.Errors, Obligations: o.Obligations}
}

// Decide decides a request. The error is an *[authzen.ValidationError] if the request does not conform
// to the snapshot's schema and settings.
func (s *Snapshot) Decide(req *authzen.EvaluationRequest, env Environment) (*Outcome, error) {
	q, err := s.NewQuery(req, env)
	if err != nil {
		return nil, err
	}
	if q.Denied != "" {
		return q.refused(env), nil
	}
	return s.DecideQuery(q), nil
}

// refused returns the denial of a query for which no policy is evaluated.
func (q *Query) refused(env Environment) *Outcome {
	out := &Outcome{Errors: []decisionlog.PolicyError{{Message: q.Denied}}}
	if env.CapabilityDenied != "" {
		out.Context = &authzen.DecisionContext{CapabilityDenied: env.CapabilityDenied}
	}
	return out
}

// DecideQuery decides a request that is already in Cedar terms.
func (s *Snapshot) DecideQuery(q *Query) *Outcome {
	decision, diagnostic := cedar.Authorize(s.Policies.Candidates(q), q, q.Request)
	permitted, out := bool(decision), &Outcome{}
	for _, e := range diagnostic.Errors {
		out.Errors = append(out.Errors, decisionlog.PolicyError{Policy: string(e.PolicyID), Message: e.Message})
	}
	if s.denyingError(diagnostic.Errors) {
		out.Errors = append(out.Errors, decisionlog.PolicyError{Message: ErrorEvaluation})
		if permitted {
			return out
		}
	}
	terms := make([]*obligations.Terms, len(diagnostic.Reasons))
	for i, reason := range diagnostic.Reasons {
		out.Policies = append(out.Policies, string(reason.PolicyID))
		terms[i] = s.Policies.ByID[reason.PolicyID].Terms
	}
	demand := obligations.Compose(permitted, terms, obligations.Request{Support: q.Support, Approved: q.Approved, Evaluation: q.evaluation})
	out.Decision, out.Context, out.Obligations = demand.Decision, demand.Context, demand.Obligations
	out.Template, out.Capability = demand.Template, demand.Capability
	return out
}

// ErrorEvaluation marks a log entry of a denial that was caused by policy errors.
const ErrorEvaluation = "evaluation_error"

// denyingError reports whether the errors of an evaluation cause a denial. Cedar skips a policy that
// errors, so a forbid that errors would not forbid.
func (s *Snapshot) denyingError(errors []cedar.DiagnosticError) bool {
	switch s.Settings.OnPolicyError {
	case onErrorSkip:
		return false
	case onErrorDenyAny:
		return len(errors) > 0
	}
	return slices.ContainsFunc(errors, func(e cedar.DiagnosticError) bool {
		return !s.Policies.ByID[e.PolicyID].Permits()
	})
}

// DeniedResult returns the result of a request that is denied before any policy is evaluated.
func DeniedResult(why error) decisionlog.Result {
	return decisionlog.Result{Errors: []decisionlog.PolicyError{{Message: why.Error()}}}
}

// ItemPrefix returns the prefix of obligation ids for the nth decision of a batch.
func ItemPrefix(n int) string { return strconv.Itoa(n) + "." }

// PrefixObligations adds a prefix to the ids of obligations, in place.
func PrefixObligations(all []authzen.Obligation, with string) {
	for i := range all {
		all[i].ID = with + all[i].ID
	}
}
