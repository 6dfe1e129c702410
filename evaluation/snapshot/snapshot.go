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
	// ErrNoSnapshot means that no policies have been installed yet.
	ErrNoSnapshot = errors.New("no policies are loaded")
	// ErrTooLong means that a search or a batch cannot end in the time that it has.
	ErrTooLong = errors.New("this would take too long: ask for less at once")
)

// A Snapshot is a policy store, compiled. It never changes and may be used by
// any number of goroutines.
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
	SubjectTypes  map[cedar.EntityType]bool // nil without an allow-list in config.yaml
	Templates     map[string]authzen.ApprovalTemplate
}

// Revision names the snapshot: "sha256:" and the hash of its files.
func (s *Snapshot) Revision() string { return s.revision }

// Archive returns the files the snapshot was made of. Do not change them.
func (s *Snapshot) Archive() Archive { return s.archive }

// Size counts what is in the snapshot: policies, and the entities that are
// stored. The schema's actions are none of these.
func (s *Snapshot) Size() (policies, entities int) {
	return len(s.Policies.Ordered), s.Entities.Stored
}

// An Environment is what a decision depends on beside snapshot and request.
type Environment struct {
	Time     time.Time                 // when the decision is made
	Approval *authzen.VerifiedApproval // that stands for the request; nil for none
}

// An Outcome is a decision and how it came about.
type Outcome struct {
	Decision    bool
	Policies    []string // the determining policies, sorted
	Errors      []decisionlog.PolicyError
	Obligations []authzen.Obligation
	Context     *authzen.DecisionContext // for the PEP; nil for nothing
	Template    string                   // by which a person could lift a denial or has yet to approve; "" for none
}

// Result is the outcome as the decision log has it.
func (o *Outcome) Result() decisionlog.Result {
	return decisionlog.Result{Decision: o.Decision, Policies: o.Policies, Errors: o.Errors, Obligations: o.Obligations}
}

// Decide decides. The error is an *[authzen.ValidationError] when the request
// cannot be read as this snapshot's schema and configuration ask.
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

func (s *Snapshot) DecideQuery(q *Query) *Outcome {
	decision, diagnostic := cedar.Authorize(s.Policies.Candidates(q), q, q.Request)
	return s.outcome(bool(decision), diagnostic, q)
}

// outcome says what follows from the engine's answer.
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

// ErrorEvaluation marks in a log entry a denial that is one because policies
// errored.
const ErrorEvaluation = "evaluation_error"

// denyingError reports whether the errors of an evaluation make it a denial.
// Cedar skips a policy that errors, which opens what an erroring forbid
// closes.
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

// A policy is one Cedar policy and what its annotations ask for.
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

func (p *Policy) Permits() bool { return p.effect == cedar.Permit }

// policies are tried in the order of their ids, so that the same request has
// the same reasons every time.
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

// Candidates returns the policies that the query must be held against.
func (p *policies) Candidates(q *Query) *policyCandidates {
	action, principal, resource := q.Node(q.Request.Action), q.Node(q.Request.Principal), q.Node(q.Request.Resource)
	return &policyCandidates{p.Ordered, p.index.find(&action, &principal, &resource, nil)}
}

// ItemPrefix is what ids begin with in an answer that has several decisions,
// where they belong to the nth.
func ItemPrefix(n int) string { return strconv.Itoa(n) + "." }

func PrefixObligations(all []authzen.Obligation, with string) {
	for i := range all {
		all[i].ID = with + all[i].ID
	}
}

// DeniedResult is the result of a request that is denied before any policy is asked.
func DeniedResult(why error) decisionlog.Result {
	return decisionlog.Result{Errors: []decisionlog.PolicyError{{Message: why.Error()}}}
}

// Count counts the policies in a tenant's files, or "" for those of the root.
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
