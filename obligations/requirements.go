package obligations

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Support is the set of obligation types that a PEP declares. The zero value is a PEP without a
// declaration, which differs from an empty declaration.
type Support struct {
	declared bool
	types    []string
}

// ReadSupport parses context.supported_obligations. nil, or a value that is not an array of
// strings, counts as no declaration, because the context is free-form.
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

// Requirements are what a decision requires of the PEP.
type Requirements struct {
	Decision bool                     // decision to send
	Context  *authzen.DecisionContext // nil without content
	// Obligations are those in Context. If policies permit but Decision is false, they are the
	// unsupported ones that withhold the permit.
	Obligations []authzen.Obligation
	// Template is the template for an approval that lifts a denial or that a permit requires; "" if
	// there is none.
	Template string
	// Capability is the template for a capability that a denial needs; "" if none would help.
	Capability string
}

// A Request has the members of a request that affect its requirements.
type Request struct {
	Support    Support
	Approved   string                     // template of the valid approval, or ""
	Evaluation *authzen.EvaluationRequest // fills placeholders; nil leaves them
}

// Compose returns the requirements of a policy decision. determining are the terms of the
// determining policies, in a fixed order. All their obligations apply. An approval is required only
// if every determining permit requires one; the template is then the first one's.
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
	if permitted && r.Approved != "" { // the approval removes the reason to wait
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

// unsupported returns the types of the obligations that withhold a permit, sorted.
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

// approve adds the approval that would help. It adds none if an obligation withholds the permit in
// any case.
func (d *Requirements) approve(permitted bool, determining []*Terms, r Request) {
	if !permitted {
		d.Template, d.Capability = lifts(determining, r.Approved)
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

// approval returns the template of the first determining permit. It returns "" if one of them
// requires no approval, or only the given one.
func approval(determining []*Terms, approved string) string {
	without := func(t *Terms) bool { return t.Approval == "" || t.Approval == approved }
	if len(determining) == 0 || slices.ContainsFunc(determining, without) {
		return ""
	}
	return determining[0].Approval
}

// lifts returns the templates of the first approval and of the first capability that determining
// forbids ask for. Both are "" if one of the forbids asks for neither, or only for the given approval.
func lifts(determining []*Terms, approved string) (approval, capability string) {
	for _, t := range determining {
		requestable := t.Requestable != "" && t.Requestable != approved
		if !requestable && t.Capability == "" {
			return "", ""
		}
		if requestable {
			approval = cmp.Or(approval, t.Requestable)
		}
		capability = cmp.Or(capability, t.Capability)
	}
	return approval, capability
}

func approvalObligation(template string) Obligation {
	properties, err := json.Marshal(authzen.ApprovalRequired{Action: authzen.ActionApprovalRequired, Template: template})
	if err != nil { // cannot fail: Cedar strings are valid UTF-8
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
