package evaluation

import (
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Explanation says how a decision came about and, of a denial, what would
// have been needed. It is for the people who write and operate policies: it
// shows what is stored, which a requester must not learn.
type Explanation struct {
	Decision  bool   `json:"decision"`
	Revision  string `json:"revision"`
	Principal string `json:"principal"` // as Cedar writes it, and so below
	Action    string `json:"action"`
	Resource  string `json:"resource"`
	Because   string `json:"because"` // in one sentence

	// Determining are the determining policies, as the log has them.
	Determining []Determining `json:"determining,omitempty"`
	// Overruled are the policies that applied and did not determine: permits
	// beside a forbid, and every policy where one in error makes the denial.
	Overruled []Trace `json:"overruled,omitempty"`
	// Errors are the policies that could not be evaluated.
	Errors []Trace `json:"errors,omitempty"`
	// Nearest are the permits that came nearest, best first, where none
	// applied; at most 20. Permits that miss in more than one part of their
	// scope are not near.
	Nearest []Near `json:"nearest,omitempty"`
	// NearestLeft counts the near permits that Nearest leaves out.
	NearestLeft int `json:"nearest_left,omitzero"`
	// Unknown are names in the request, or in the policies near it, that mean
	// nothing to the snapshot.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Ignored is what a request that is denied said and what did not count.
	Ignored []Ignored `json:"ignored,omitempty"`
	// Withheld are the obligations for want of which a permit is a denial.
	Withheld []Withheld `json:"withheld,omitempty"`
	// Suggestions say what would change a denial, the surest first.
	Suggestions []Suggestion `json:"suggestions,omitempty"`
	// Shadow is what the shadow store decided of a logged request; nil where
	// there was none.
	Shadow *decisionlog.Shadow `json:"shadow,omitzero"`
}

// A Determining is a policy that determined a decision.
type Determining struct {
	Trace
	Text        string `json:"text"` // as it is written
	ReasonUser  string `json:"reason_user,omitzero"`
	ReasonAdmin string `json:"reason_admin,omitzero"`
}

// A Near is a permit that did not apply. Where it is the scope that the request
// does not satisfy, Part is principal, action or resource, and the conditions
// are not reached.
type Near struct {
	Trace
	Part    string `json:"part,omitzero"`
	Because string `json:"because"` // what kept it from applying, in one sentence
}

// An Unknown is a name that means nothing to the snapshot.
type Unknown struct {
	Name string `json:"name"` // such as context.aproval, or an entity
	What string `json:"what"` // what is not known of it
	Hint string `json:"hint,omitzero"`
}

// An Ignored is something the request says of an entity where something else
// counts: what is stored, or what only the service can say.
type Ignored struct {
	Path   string `json:"path"`
	Sent   string `json:"sent"`
	Counts string `json:"counts"` // a Cedar value, or "absent"
}

// A Withheld is an obligation that the PEP did not declare it can meet, so
// that it is answered with a denial.
type Withheld struct {
	Policy   string `json:"policy"` // that asks for it
	Type     string `json:"type"`
	Template string `json:"template,omitzero"` // of an approval
	Because  string `json:"because"`
}

// A Suggestion is what would change what a policy did, given all of Needs.
// Nothing is needed of a policy that only its author can change.
type Suggestion struct {
	Policy string   `json:"policy"`
	Then   Then     `json:"then"`
	Needs  []string `json:"needs,omitempty"`
}

// A Then is what a policy would do.
type Then string

const (
	ThenPermits    Then = "permits"
	ThenNotForbids Then = "does not forbid"
	ThenEvaluates  Then = "can be evaluated"
	ThenStays      Then = "makes no exception"
)

// maxNearest bounds the permits that an explanation shows: in a large store
// thousands differ in nothing but the principal they name.
const maxNearest = 20

// Explain says how [Snapshot.Decide] decides. It depends on the same things and
// on nothing else, and its error is the same.
func (s *Snapshot) Explain(req *authzen.EvaluationRequest, env Environment) (*Explanation, error) {
	outcome, err := s.Decide(req, env)
	if err != nil {
		return nil, err
	}
	q, err := s.query(req, env)
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
			Revision:  s.revision,
			Principal: q.request.Principal.String(),
			Action:    q.request.Action.String(),
			Resource:  q.request.Resource.String(),
			Because:   q.refused,
		},
	}
	if q.refused == "" {
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

// An explainer makes one explanation.
type explainer struct {
	snapshot *Snapshot
	request  *authzen.EvaluationRequest
	query    *query
	outcome  *Outcome
	tracer   *tracer
	out      *Explanation
}

// policies sorts the policies by what they did.
func (e *explainer) policies() {
	permitted := false
	var near []nearPermit
	for _, p := range e.snapshot.policies.ordered {
		missed := e.tracer.misses(p)
		verdict, alone := e.tracer.verdicts(p)
		switch {
		case len(missed) > 0 || verdict == VerdictFalse:
			if p.permits() && len(missed) <= 1 {
				near = append(near, nearPermit{p, missed, alone})
			}
		case verdict == VerdictError:
			e.out.Errors = append(e.out.Errors, e.tracer.trace(p))
		default:
			permitted = permitted || p.permits()
			e.applied(p)
		}
	}
	if !permitted {
		e.nearest(near)
	}
	e.withhold()
}

// applied notes a policy that applied.
func (e *explainer) applied(p *policy) {
	trace := e.tracer.trace(p)
	if !slices.Contains(e.outcome.Policies, string(p.id)) {
		e.out.Overruled = append(e.out.Overruled, trace)
		return
	}
	e.out.Determining = append(e.out.Determining, Determining{
		Trace:       trace,
		Text:        e.snapshot.written(p).Text,
		ReasonUser:  p.terms.ReasonUser,
		ReasonAdmin: p.terms.ReasonAdmin,
	})
}

// because says in one sentence what the decision rests on.
func (e *explainer) because() string {
	determining := listed(e.outcome.Policies)
	switch {
	case determining == "" && e.denyingError():
		return "a policy could not be evaluated, and on_policy_error is " + e.snapshot.settings.OnPolicyError
	case len(e.snapshot.policies.ordered) == 0:
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

// denyingError reports whether the decision is a denial because a policy
// could not be evaluated.
func (e *explainer) denyingError() bool {
	return slices.ContainsFunc(e.outcome.Errors, func(err decisionlog.PolicyError) bool {
		return err == decisionlog.PolicyError{Message: errorEvaluation}
	})
}

// withhold lists the obligations for want of which a permit is a denial.
func (e *explainer) withhold() {
	determining := e.out.Determining
	if e.outcome.Decision || len(determining) == 0 || determining[0].Effect == "forbid" {
		return
	}
	approved := true
	for _, d := range determining {
		terms := e.snapshot.policies.byID[cedar.PolicyID(d.Policy)].terms
		approved = approved && terms.Approval != "" && terms.Approval != e.query.approved
		for _, o := range terms.Obligations {
			if o.Withhold && !e.query.support.Has(o.Type) {
				e.out.Withheld = append(e.out.Withheld, withheld(d.Policy, o.Type, ""))
			}
		}
	}
	if approved && !e.query.support.Has(authzen.ObligationCustom) {
		template := e.snapshot.policies.byID[cedar.PolicyID(determining[0].Policy)].terms.Approval
		e.out.Withheld = append(e.out.Withheld, withheld(determining[0].Policy, authzen.ObligationCustom, template))
	}
}

func withheld(policy, obligation, template string) Withheld {
	return Withheld{policy, obligation, template, fmt.Sprintf("the PEP does not declare %q in context.%s", obligation, contextSupport)}
}

// determining lists the determining policies by their ids.
func (e *Explanation) determining() []string {
	var ids []string
	for _, d := range e.Determining {
		ids = append(ids, d.Policy)
	}
	return ids
}
