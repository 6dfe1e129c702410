package explain

import (
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Explanation explains a decision and, for a denial, what would change it. It is for authors and
// operators of policies. It shows stored data, which a requester must not see.
type Explanation struct {
	Decision  bool   `json:"decision"`
	Revision  string `json:"revision"`
	Principal string `json:"principal"` // in Cedar syntax, like the other entities
	Action    string `json:"action"`
	Resource  string `json:"resource"`
	Because   string `json:"because"` // in one sentence

	// Determining lists the determining policies, as in the log.
	Determining []Determining `json:"determining,omitempty"`
	// Overruled lists the policies that applied but did not determine the decision: permits that a forbid
	// overrides, and all policies if an error causes the denial.
	Overruled []Trace `json:"overruled,omitempty"`
	// Errors lists the policies whose evaluation failed.
	Errors []Trace `json:"errors,omitempty"`
	// Nearest lists the near misses if no permit applied, nearest first, at most 20. A permit that the
	// request misses in more than one part of the scope is not a near miss.
	Nearest []NearMiss `json:"nearest,omitempty"`
	// NearestLeft is the number of near misses that Nearest omits.
	NearestLeft int `json:"nearest_left,omitzero"`
	// Unknown lists names in the request, or in the policies near it, that the snapshot does not know.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Ignored lists what a denied request said without effect.
	Ignored []Ignored `json:"ignored,omitempty"`
	// Withheld lists the unsupported obligations that turned a permit into a denial.
	Withheld []Withheld `json:"withheld,omitempty"`
	// Suggestions lists what would change a denial, the most certain first.
	Suggestions []Suggestion `json:"suggestions,omitempty"`
	// Shadow is the shadow store's decision of a logged request; nil for none.
	Shadow *decisionlog.Shadow `json:"shadow,omitzero"`
}

// A Determining is a policy that determined a decision.
type Determining struct {
	Trace
	Text        string `json:"text"` // source text
	ReasonUser  string `json:"reason_user,omitzero"`
	ReasonAdmin string `json:"reason_admin,omitzero"`
}

// A NearMiss is a permit that did not apply. If the request does not satisfy the scope, Part is
// principal, action or resource, and the conditions are not evaluated.
type NearMiss struct {
	Trace
	Text    string `json:"text"` // source text
	Part    string `json:"part,omitzero"`
	Because string `json:"because"` // why it did not apply, in one sentence
}

// An Unknown is a name that the snapshot does not know.
type Unknown struct {
	Name string `json:"name"` // such as context.aproval, or an entity
	What string `json:"what"` // what is unknown about it
	Hint string `json:"hint,omitzero"`
}

// An Ignored is a statement of the request about an entity that has no effect. A stored value wins, or
// only the service can make the statement.
type Ignored struct {
	Path   string `json:"path"`
	Sent   string `json:"sent"`
	Counts string `json:"counts"` // a Cedar value, or "absent"
}

// A Withheld is an obligation that the PEP does not declare it supports. The answer is therefore a
// denial.
type Withheld struct {
	Policy   string `json:"policy"` // the policy with the obligation
	Type     string `json:"type"`
	Template string `json:"template,omitzero"` // of an approval
	Because  string `json:"because"`
}

// A Suggestion is a change that would alter a policy's effect if all of Needs hold. Needs is empty if
// only the policy's author can make the change.
type Suggestion struct {
	Policy string      `json:"policy"`
	Then   Consequence `json:"then"`
	Needs  []string    `json:"needs,omitempty"`
}

// A Consequence is the effect that a policy would have.
type Consequence string

const (
	ThenPermits    Consequence = "permits"
	ThenNotForbids Consequence = "does not forbid"
	ThenEvaluates  Consequence = "can be evaluated"
	ThenStays      Consequence = "makes no exception"
)

// maxNearest limits the near misses in an explanation. In a large store, thousands differ only in the
// principal they name.
const maxNearest = 20

// Explain explains the decision of [snapshot.Snapshot.Decide]. It has the same inputs, no others, and
// the same error.
func Explain(s *snapshot.Snapshot, req *authzen.EvaluationRequest, env snapshot.Environment) (*Explanation, error) {
	outcome, err := s.Decide(req, env)
	if err != nil {
		return nil, err
	}
	q, err := s.NewQuery(req, env)
	if err != nil {
		return nil, err
	}
	e := explainer{
		snapshot: s,
		request:  req,
		query:    q,
		outcome:  outcome,
		tracer:   newTracer(s, q),
		out: &Explanation{
			Decision:  outcome.Decision,
			Revision:  s.Revision(),
			Principal: q.Request.Principal.String(),
			Action:    q.Request.Action.String(),
			Resource:  q.Request.Resource.String(),
			Because:   q.Denied,
		},
	}
	if q.Denied == "" {
		e.policies()
		e.out.Because = e.because()
	}
	if !outcome.Decision {
		e.unknown()
		e.ignored()
		e.suggest()
	}
	return e.out, nil
}

// An explainer builds one explanation.
type explainer struct {
	snapshot *snapshot.Snapshot
	request  *authzen.EvaluationRequest
	query    *snapshot.Query
	outcome  *snapshot.Outcome
	tracer   *tracer
	out      *Explanation
}

// policies sorts the policies by their result.
func (e *explainer) policies() {
	permitted := false
	var near []nearPermit
	for _, p := range e.snapshot.Policies.Ordered {
		missed := e.tracer.misses(p)
		verdict, alone := e.tracer.verdicts(p)
		switch {
		case len(missed) > 0 || verdict == VerdictFalse:
			if p.Permits() && len(missed) <= 1 {
				near = append(near, nearPermit{p, missed, alone})
			}
		case verdict == VerdictError:
			e.out.Errors = append(e.out.Errors, e.tracer.trace(p))
		default:
			permitted = permitted || p.Permits()
			e.applied(p)
		}
	}
	if !permitted {
		e.nearest(near)
	}
	e.withhold()
}

// applied adds a policy that applied.
func (e *explainer) applied(p *snapshot.Policy) {
	trace := e.tracer.trace(p)
	if !slices.Contains(e.outcome.Policies, string(p.ID)) {
		e.out.Overruled = append(e.out.Overruled, trace)
		return
	}
	e.out.Determining = append(e.out.Determining, Determining{
		Trace:       trace,
		Text:        writtenIn(e.snapshot, p).Text,
		ReasonUser:  p.Terms.ReasonUser,
		ReasonAdmin: p.Terms.ReasonAdmin,
	})
}

// because returns the reason for the decision in one sentence.
func (e *explainer) because() string {
	determining := listed(e.outcome.Policies)
	switch {
	case determining == "" && e.denyingError():
		return "a policy could not be evaluated, and on_policy_error is " + e.snapshot.Settings.OnPolicyError
	case len(e.snapshot.Policies.Ordered) == 0:
		return "there are no policies"
	case determining == "":
		return "no permit applies"
	case e.out.Determining[0].Effect == "forbid":
		return "forbidden by " + determining
	case !e.outcome.Decision:
		return "permitted by " + determining + ", but withheld from a PEP that cannot meet its obligations"
	}
	return "permitted by " + determining
}

// denyingError reports whether a policy error caused the denial.
func (e *explainer) denyingError() bool {
	return slices.ContainsFunc(e.outcome.Errors, func(err decisionlog.PolicyError) bool {
		return err == decisionlog.PolicyError{Message: snapshot.ErrorEvaluation}
	})
}

// withhold lists the unsupported obligations that turned a permit into a denial.
func (e *explainer) withhold() {
	determining := e.out.Determining
	if e.outcome.Decision || len(determining) == 0 || determining[0].Effect == "forbid" {
		return
	}
	approved := true
	for _, d := range determining {
		terms := e.snapshot.Policies.ByID[cedar.PolicyID(d.Policy)].Terms
		approved = approved && terms.Approval != "" && terms.Approval != e.query.Approved
		for _, o := range terms.Obligations {
			entry := withheld(d.Policy, o.Type, "")
			if o.Withhold && !e.query.Support.Has(o.Type) && !slices.Contains(e.out.Withheld, entry) {
				e.out.Withheld = append(e.out.Withheld, entry)
			}
		}
	}
	if approved && !e.query.Support.Has(authzen.ObligationCustom) {
		template := e.snapshot.Policies.ByID[cedar.PolicyID(determining[0].Policy)].Terms.Approval
		e.out.Withheld = append(e.out.Withheld, withheld(determining[0].Policy, authzen.ObligationCustom, template))
	}
}

func withheld(policy, obligation, template string) Withheld {
	return Withheld{policy, obligation, template, fmt.Sprintf("the PEP does not declare %q in context.%s", obligation, snapshot.ContextSupport)}
}

// DeterminingIDs lists the ids of the determining policies.
func (e *Explanation) DeterminingIDs() []string {
	var ids []string
	for _, d := range e.Determining {
		ids = append(ids, d.Policy)
	}
	return ids
}
