package enforce

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/policy-service/policy-service/obligations/plain"
)

// An Observation is the decision on a call that the gateway forwards whatever the
// decision is.
type Observation struct {
	// Reason is the code with which the call would be refused; "" for a call that is
	// permitted. [ReasonPending] means that a person would have to approve it.
	Reason string
	Why    string // what the policies say of it to the operator, or an error
	// NotCarriedOut are the obligations of the decision but labels, each a type and an
	// id. None of them is
	// carried out.
	NotCarriedOut []string
}

// ReasonOrNone returns the reason of an observation, and "" for none.
func (o *Observation) ReasonOrNone() string {
	if o == nil {
		return ""
	}
	return o.Reason
}

// observe asks the PDP about a call as in enforcement, and forwards the call
// whatever the answer is. It carries out no obligation and asks no person: a
// notification of a denial, and an approval, would be of a call that ran anyway.
// Labels are the exception, because decisions about other servers read them.
func (g *Gate) observe(ctx context.Context, call *Call) (*Disposition, error) {
	evaluated := call.Message.Encode()
	asked, err := g.ask(ctx, call)
	defer func() { asked.release() }()
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal) && refusal.isUndecided() && ctx.Err() == nil:
		if err := g.count(call, &asked); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case asked.question.Pass:
		return &Disposition{Forward: call.Message, Finish: pass}, nil
	}
	if !call.isUnchanged(evaluated) {
		return nil, errChanged
	}
	seen := &Observation{}
	if refusal != nil {
		seen.Reason, seen.Why = refusal.Data.Reason, cmp.Or(refusal.Why, refusal.Message)
	} else {
		seen = g.observation(call, asked)
	}
	entry := &Entry{Call: call, Digest: asked.digest, Observed: seen}
	if asked.answer != nil {
		entry.Decisions = Decisions(asked.answer.EvaluationID)
		call.Results = call.Results.And(labelRules(asked.answer))
	}
	g.logObserved(ctx, entry)
	asked.release = keep
	if seen.Reason != "" {
		return g.forward(entry)
	}
	return call.presenting(g.forward(entry))
}

// count binds a call and counts it for the limits, if its mapping failed before that.
func (g *Gate) count(call *Call, a *asked) (err error) {
	if a.digest != "" {
		return nil
	}
	if _, a.digest, err = g.bind(call); err != nil {
		return err
	}
	release, err := g.take(call)
	if err == nil {
		a.release = release
	}
	return err
}

// isUndecided reports whether a call is refused because there is no decision on it.
func (r *Refusal) isUndecided() bool {
	return r.Data.Reason == ReasonPDP || r.Data.Reason == ReasonMapping
}

// observation returns what enforcement would do with an answer.
func (g *Gate) observation(call *Call, a asked) *Observation {
	denials, refusal := g.check.judge(call, a.question, a.answer)
	seen := &Observation{NotCarriedOut: obligationsOf(a.answer)}
	if refusal == nil {
		return seen
	}
	seen.Reason, seen.Why = refusal.Data.Reason, cmp.Or(refusal.Why, refusal.Message)
	if denials != nil && g.cfg.Approvals != nil && call.Message.IsRequest() {
		seen.Reason, seen.Why = ReasonPending, cmp.Or(refusal.Why, "a person has to approve the call")
	}
	return seen
}

// obligationsOf returns the types and the ids of the obligations of an answer that
// are not carried out.
func obligationsOf(a *Answer) (ids []string) {
	for _, d := range a.Decisions {
		if d.Context == nil {
			continue
		}
		for _, o := range d.Context.Obligations {
			if !isLabel(&o) {
				ids = append(ids, o.Type+" "+o.ID)
			}
		}
	}
	return ids
}

// logObserved logs a call that enforcement would refuse.
func (g *Gate) logObserved(ctx context.Context, e *Entry) {
	if e.Observed.Reason == "" {
		return
	}
	about := append(About(e.Call), slog.String("reason_code", e.Observed.Reason), slog.String("reason", plain.Text(e.Observed.Why)))
	for _, id := range e.Decisions {
		about = append(about, slog.String("decision_id", id))
	}
	g.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "would be denied", about...)
}
