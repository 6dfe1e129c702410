package obligations

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Support is what a PEP says it can meet. The zero value is a PEP that said
// nothing, which is not the same as one that can meet nothing.
type Support struct {
	declared bool
	types    []string
}

// ReadSupport reads context.supported_obligations. A value that is no array
// of strings says nothing (the context is free-form), and so does nil.
func ReadSupport(raw jsontext.Value) Support {
	var types []*string
	if raw.Kind() != '[' || json.Unmarshal(raw, &types) != nil {
		return Support{}
	}
	s := Support{declared: true}
	for _, t := range types {
		if t == nil {
			return Support{}
		}
		s.types = append(s.types, *t)
	}
	return s
}

// Has reports whether the PEP declared the type.
func (s Support) Has(obligationType string) bool {
	return s.declared && slices.Contains(s.types, obligationType)
}

// A Demand is what a decision asks of the PEP.
type Requirements struct {
	Decision bool                     // what the PEP is told
	Context  *authzen.DecisionContext // nil when there is nothing to act on
	// Obligations are those in Context or, where policies permit and Decision
	// is false, those for want of which it is.
	Obligations []authzen.Obligation
	// Template is by which a person could lift a denial, or has to approve what
	// is permitted; "" where no person can.
	Template string
}

// A Request is what counts of a request beside the decision about it.
type Request struct {
	Support    Support
	Approved   string                     // template of the approval that stands, or ""
	Evaluation *authzen.EvaluationRequest // from which obligations are filled in; nil leaves them as they are
}

// Compose says what follows from what the policies decided. determining are
// the terms of the policies that determined it, in a fixed order. Every
// obligation of every one of them holds; an approval is asked for only when no
// determining permit goes without, and then by the first one's template.
func Compose(permitted bool, determining []*Terms, r Request) Requirements {
	d := Requirements{Decision: permitted}
	for _, t := range determining {
		for _, o := range t.Obligations {
			d.add(o, r)
		}
	}
	var missing []string
	if permitted && !d.Decision {
		missing = unsupported(determining, r.Support)
	}
	d.approve(permitted, determining, r)
	if permitted && r.Approved != "" { // why one had to wait is no reason any more
		determining = slices.DeleteFunc(slices.Clone(determining), func(t *Terms) bool { return t.Approval == r.Approved })
	}
	context := authzen.DecisionContext{
		ReasonUser:  reason(determining, func(t *Terms) string { return t.ReasonUser }),
		ReasonAdmin: reason(determining, func(t *Terms) string { return t.ReasonAdmin }),
	}
	if d.Decision == permitted {
		context.Obligations = d.Obligations
	}
	if missing != nil {
		context.Reason, context.SupportedObligations = authzen.ReasonObligationUnsupported, missing
		context.ReasonAdmin = context.ReasonAdmin.After("The permit is withheld: the PEP has to declare " + strings.Join(missing, ", ") + " in context.supported_obligations.")
	}
	if missing != nil || context.ReasonUser != nil || context.ReasonAdmin != nil || context.Obligations != nil {
		d.Context = &context
	}
	return d
}

// unsupported lists the types of the obligations for want of which a permit is
// withheld, sorted.
func unsupported(determining []*Terms, s Support) []string {
	var types []string
	for _, t := range determining {
		for _, o := range t.Obligations {
			if o.Withhold && !s.Has(o.Type) {
				types = append(types, o.Type)
			}
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// approve adds what is left for a person to say. Where an obligation withholds
// the permit anyway, a person could not help.
func (d *Requirements) approve(permitted bool, determining []*Terms, r Request) {
	if !permitted {
		d.Template = requestable(determining, r.Approved)
		return
	}
	template := approval(determining, r.Approved)
	if template == "" {
		return
	}
	if d.Decision {
		d.Template = template
	}
	d.add(approvalObligation(template), r)
}

func (d *Requirements) add(o Obligation, r Request) {
	if o.Withhold && !r.Support.Has(o.Type) {
		d.Decision = false
	}
	d.Obligations = append(d.Obligations, authzen.Obligation{
		ID:         fmt.Sprintf("obligation-%d", len(d.Obligations)+1),
		Type:       o.Type,
		Properties: fillPlaceholders(o.Properties, r.Evaluation),
	})
}

// approval returns the template of the first determining permit, or "" when
// one of them permits without an approval other than the one that stands.
func approval(determining []*Terms, approved string) string {
	without := func(t *Terms) bool { return t.Approval == "" || t.Approval == approved }
	if len(determining) == 0 || slices.ContainsFunc(determining, without) {
		return ""
	}
	return determining[0].Approval
}

// requestable returns the template of the first determining forbid, or "" when
// one of them is not to be lifted, or not by the approval that stands.
func requestable(determining []*Terms, approved string) string {
	final := func(t *Terms) bool { return t.Requestable == "" || t.Requestable == approved }
	if len(determining) == 0 || slices.ContainsFunc(determining, final) {
		return ""
	}
	return determining[0].Requestable
}

func approvalObligation(template string) Obligation {
	properties, err := json.Marshal(authzen.ApprovalRequired{Action: authzen.ActionApprovalRequired, Template: template})
	if err != nil { // two strings always encode, but for bad UTF-8, which no Cedar string holds
		panic(err)
	}
	return Obligation{Type: authzen.ObligationCustom, Properties: properties, Withhold: true}
}

// reason joins the distinct sentences of the determining policies.
func reason(determining []*Terms, of func(*Terms) string) authzen.Reason {
	var sentences []string
	for _, t := range determining {
		if s := of(t); s != "" && !slices.Contains(sentences, s) {
			sentences = append(sentences, s)
		}
	}
	if sentences == nil {
		return nil
	}
	return authzen.Reason{"en": strings.Join(sentences, " ")}
}
