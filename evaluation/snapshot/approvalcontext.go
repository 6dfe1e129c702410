package snapshot

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Members of context.approval, where policies read the active approval.
const (
	ApprovalTemplateName = "template"
	approvalApprovers    = "approvers"
	approvalUntil        = "until"
	approvalChannel      = "channel"
	approvalUsesLeft     = "uses_left" // only if uses are counted
)

// approvalShape maps these members to the types that a schema may declare.
var approvalShape = factShape{
	kinds: map[string]kind{
		ApprovalTemplateName: kindString,
		approvalApprovers:    kindSet,
		approvalUntil:        KindDatetime,
		approvalChannel:      kindString,
		approvalUsesLeft:     kindLong,
	},
	sometimes: map[string]string{approvalUsesLeft: "only where uses are counted"},
}

// approve adds the active approval to the context as a fact: context.approval, and
// context.justification with the value approved, which a request itself can never set. It omits
// members that the schema has no place for.
func (s *Snapshot) approve(q *Query, shape *shape, a *authzen.VerifiedApproval, values cedar.RecordMap) {
	if a == nil {
		return
	}
	declared, ok := shape.member(ContextApproval)
	if record, fits := s.approval(declared, a); ok && fits {
		values[ContextApproval] = record
	}
	if declared, ok := shape.member(ContextJustification); ok && slices.Contains([]kind{kindAny, kindString}, declared.OrAny().Kind) {
		values[ContextJustification] = cedar.String(justified)
	}
	q.Approved = a.Template
}

// approval returns the record of an approval, with the members that the schema declares. It does
// not fit if an approver is not of the declared type.
func (s *Snapshot) approval(shape *shape, a *authzen.VerifiedApproval) (record cedar.Record, fits bool) {
	approvers, fits := s.approvers(shape, approvalApprovers, a.Approvers)
	all := cedar.RecordMap{
		ApprovalTemplateName: cedar.String(a.Template),
		approvalApprovers:    approvers,
		approvalUntil:        types.NewDatetime(a.Until),
		approvalChannel:      cedar.String(a.Channel),
	}
	if a.UsesLeft > 0 {
		all[approvalUsesLeft] = cedar.Long(a.UsesLeft)
	}
	return onlyDeclared(shape, all), fits
}

// justified is the justification that only the service sets.
const justified = "approved"

// justification reads context.justification. It drops the value "approved", whether or not the
// schema declares the member.
func (r *reader) justification(s *shape, into cedar.RecordMap) error {
	declared, ok := s.member(ContextJustification)
	var value cedar.Value
	var err error
	if ok {
		value, err = r.value(declared)
	} else {
		value, err = r.value(nil)
	}
	text, _ := value.(cedar.String)
	claimed := strings.EqualFold(strings.TrimSpace(string(text)), justified)
	switch {
	case err != nil || claimed:
		return err
	case ok:
		into[ContextJustification] = value
	case !r.drop || !s.drops(ContextJustification):
		return r.invalid("is not declared by the schema")
	}
	return nil
}
