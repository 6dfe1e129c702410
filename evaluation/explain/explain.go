package explain

import (
	"fmt"
	"slices"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
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
	Nearest []NearMiss `json:"nearest,omitempty"`
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
type NearMiss struct {
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
	Policy string      `json:"policy"`
	Then   Consequence `json:"then"`
	Needs  []string    `json:"needs,omitempty"`
}

// A Then is what a policy would do.
type Consequence string

const (
	ThenPermits    Consequence = "permits"
	ThenNotForbids Consequence = "does not forbid"
	ThenEvaluates  Consequence = "can be evaluated"
	ThenStays      Consequence = "makes no exception"
)

// maxNearest bounds the permits that an explanation shows: in a large store
// thousands differ in nothing but the principal they name.
const maxNearest = 20

// Explain says how [snapshot.Snapshot.Decide] decides. It depends on the same things and
// on nothing else, and its error is the same.
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

// An explainer makes one explanation.
type explainer struct {
	snapshot *snapshot.Snapshot
	request  *authzen.EvaluationRequest
	query    *snapshot.Query
	outcome  *snapshot.Outcome
	tracer   *tracer
	out      *Explanation
}

// policies sorts the policies by what they did.
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

// applied notes a policy that applied.
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

// because says in one sentence what the decision rests on.
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

// denyingError reports whether the decision is a denial because a policy
// could not be evaluated.
func (e *explainer) denyingError() bool {
	return slices.ContainsFunc(e.outcome.Errors, func(err decisionlog.PolicyError) bool {
		return err == decisionlog.PolicyError{Message: snapshot.ErrorEvaluation}
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
		terms := e.snapshot.Policies.ByID[cedar.PolicyID(d.Policy)].Terms
		approved = approved && terms.Approval != "" && terms.Approval != e.query.Approved
		for _, o := range terms.Obligations {
			if o.Withhold && !e.query.Support.Has(o.Type) {
				e.out.Withheld = append(e.out.Withheld, withheld(d.Policy, o.Type, ""))
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

// DeterminingIDs lists the determining policies by their ids.
func (e *Explanation) DeterminingIDs() []string {
	var ids []string
	for _, d := range e.Determining {
		ids = append(ids, d.Policy)
	}
	return ids
}
