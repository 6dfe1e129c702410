package snapshot

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// ErrNoSnapshot means that no policies have been loaded yet.
	ErrNoSnapshot = errors.New("no policies are loaded")
	// ErrTooLong means that a search or a batch cannot finish before its deadline.
	ErrTooLong = errors.New("this would take too long: ask for less at once")
)

// A Snapshot is a compiled policy store. It is immutable and safe for concurrent use.
type Snapshot struct {
	revision      string
	archive       Archive
	Settings      Settings
	Schema        *resolved.Schema // nil without one
	Shapes        shapes
	Entities      *entityStore
	entityIndexes map[cedar.EntityType]*entityIndex
	Actions       actionIndex
	Policies      policies
	SubjectTypes  map[cedar.EntityType]bool // nil without an allowlist in config.yaml
	Templates     map[string]authzen.ApprovalTemplate
}

// Revision returns "sha256:" and the hash of the snapshot's files.
func (s *Snapshot) Revision() string { return s.revision }

// Archive returns the files of the snapshot. Callers must not modify them.
func (s *Snapshot) Archive() Archive { return s.archive }

// Size returns the number of policies and of stored entities. The schema's actions do not count.
func (s *Snapshot) Size() (policies, entities int) {
	return len(s.Policies.Ordered), s.Entities.Stored
}

// An Environment holds the inputs of a decision other than snapshot and request.
type Environment struct {
	Time     time.Time                 // the time of the decision
	Approval *authzen.VerifiedApproval // the active approval for the request; nil for none
}

// An Outcome is a decision and its reasons.
type Outcome struct {
	Decision    bool
	Policies    []string // the determining policies, sorted
	Errors      []decisionlog.PolicyError
	Obligations []authzen.Obligation
	Context     *authzen.DecisionContext // for the PEP; nil for none
	Template    string                   // by which a person could lift a denial or has yet to approve; "" for none
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
		return &Outcome{Errors: []decisionlog.PolicyError{{Message: q.Denied}}}, nil
	}
	return s.DecideQuery(q), nil
}

// DecideQuery decides a request that is already in Cedar terms.
func (s *Snapshot) DecideQuery(q *Query) *Outcome {
	decision, diagnostic := cedar.Authorize(s.Policies.Candidates(q), q, q.Request)
	return s.outcome(bool(decision), diagnostic, q)
}

// outcome derives the outcome from the engine's answer.
func (s *Snapshot) outcome(permitted bool, diagnostic cedar.Diagnostic, q *Query) *Outcome {
	out := &Outcome{}
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
	out.Decision, out.Context, out.Obligations, out.Template = demand.Decision, demand.Context, demand.Obligations, demand.Template
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

// A Policy is one Cedar policy with the obligations and terms of its annotations.
type Policy struct {
	ID           cedar.PolicyID
	effect       cedar.Effect
	Syntax       *xast.Policy
	Scope        cedarsyntax.Scope
	conditions   *cedar.Policy // without the scope, which the index has tested
	Terms        *obligations.Terms
	File         string
	Line, Column int
}

// Permits reports whether the policy is a permit.
func (p *Policy) Permits() bool { return p.effect == cedar.Permit }

// policies holds the policies in the order of their ids. They are evaluated in this order, so that the
// same request always has the same reasons.
type policies struct {
	Ordered []*Policy
	ByID    map[cedar.PolicyID]*Policy
	index   policyIndex
	reverse policyIndex // by action, then resource, then principal
}

func newPolicies(all []*Policy) policies {
	slices.SortFunc(all, func(a, b *Policy) int { return strings.Compare(string(a.ID), string(b.ID)) })
	out := policies{Ordered: all, ByID: make(map[cedar.PolicyID]*Policy, len(all))}
	for i, p := range all {
		out.ByID[p.ID] = p
		p.Scope = cedarsyntax.ScopeOf(p.Syntax)
		out.index.add(int32(i), p.Scope)
		out.reverse.add(int32(i), p.Scope.Reversed())
	}
	return out
}

// Candidates returns the policies to evaluate for the query.
func (p *policies) Candidates(q *Query) *policyCandidates {
	action, principal, resource := q.Node(q.Request.Action), q.Node(q.Request.Principal), q.Node(q.Request.Resource)
	return &policyCandidates{p.Ordered, p.index.find(&action, &principal, &resource, nil)}
}

// ItemPrefix returns the prefix of obligation ids for the nth decision of a batch.
func ItemPrefix(n int) string { return strconv.Itoa(n) + "." }

// PrefixObligations adds a prefix to the ids of obligations, in place.
func PrefixObligations(all []authzen.Obligation, with string) {
	for i := range all {
		all[i].ID = with + all[i].ID
	}
}

// DeniedResult returns the result of a request that is denied before any policy is evaluated.
func DeniedResult(why error) decisionlog.Result {
	return decisionlog.Result{Errors: []decisionlog.PolicyError{{Message: why.Error()}}}
}

// Count counts the policies in a tenant's files, or in the root for "".
func (s *Snapshot) Count(tenant string) (policies, forbids int) {
	for _, p := range s.Policies.Ordered {
		if TenantOf(p.File) == tenant {
			policies++
			if !p.Permits() {
				forbids++
			}
		}
	}
	return policies, forbids
}
