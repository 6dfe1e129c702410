package approval

import (
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A proof is the payload of a binding token. It proves a denial.
type proof struct {
	Issuer       string           `json:"iss"`
	Audience     string           `json:"aud"`
	IssuedAt     int64            `json:"iat"`
	Expires      int64            `json:"exp"`
	ID           string           `json:"jti"` // Decision-ID; a denial is valid for one task
	ExpiresAt    string           `json:"denial_expires_at"`
	EvaluationID string           `json:"evaluation_id"`
	Tenant       string           `json:"tenant,omitzero"`
	Caller       string           `json:"client_id,omitzero"`
	Template     string           `json:"template"`
	Revision     string           `json:"policy_revision"`
	Subject      authzen.Subject  `json:"subject"`
	Actors       []Actor          `json:"actors,omitempty"`
	Resource     authzen.Resource `json:"resource"`
	Action       authzen.Action   `json:"action"`
	Members      []string         `json:"binding_context_members"`
	Bound        contextBinding   `json:"bound_context"` // without names of members
}

// newProof returns the proof of a denial, valid until expires.
func newProof(d *authzen.RequestableDenial, members []string, expires time.Time, issuer string) (proof, error) {
	actors, err := actorsOf(d.Request.Subject)
	if err != nil {
		return proof{}, err
	}
	bound, err := bind(d.Request.Context, members)
	if err != nil {
		return proof{}, err
	}
	names := append([]string{}, bound.Members...)
	bound.Members = nil // the claims have the names already
	return proof{
		Issuer: issuer, Audience: issuer, IssuedAt: d.Time.Unix(), Expires: expires.Unix(), ID: d.EvaluationID,
		ExpiresAt:    expires.Format(time.RFC3339),
		EvaluationID: d.EvaluationID, Tenant: d.Tenant, Caller: d.Caller, Template: d.Template, Revision: d.Revision,
		Subject: d.Request.Subject, Actors: actors, Resource: d.Request.Resource, Action: d.Request.Action,
		Members: names, Bound: bound,
	}, nil
}

// covers reports whether the denial covers the subject, resource, action and context of a
// submission.
func (p *proof) covers(sub *authzen.Submission, resource authzen.Resource, action authzen.Action) bool {
	item := Item{Resource: p.Resource, Action: p.Action}
	return item.sameCall(p.Subject, &authzen.EvaluationRequest{Subject: sub.Subject, Resource: resource, Action: action}) &&
		p.context().covers(sub.Context, true)
}

// context returns the bound context of the denial.
func (p *proof) context() *contextBinding {
	b := p.Bound
	b.Members = p.Members
	return &b
}

// A state is the payload of approval.state: the approved request.
type state struct {
	Issuer       string                `json:"iss"`
	Audience     string                `json:"aud"`
	IssuedAt     int64                 `json:"iat"`
	Expires      int64                 `json:"exp"`
	ID           string                `json:"approval_id"`
	Task         string                `json:"task_id"`
	EvaluationID string                `json:"evaluation_id"`
	Tenant       string                `json:"tenant,omitzero"`
	Scope        authzen.ApprovalScope `json:"scope"`
	Subject      authzen.Subject       `json:"subject"`
	Resource     authzen.Resource      `json:"resource"`
	Action       authzen.Action        `json:"action"`
	Members      []string              `json:"binding_context_members"`
}

// newState returns the state of an item's approval.
func newState(r *Request, i *Item, issuer string) state {
	return state{
		Issuer: issuer, Audience: issuer, IssuedAt: i.Approval.At.Unix(), Expires: i.Approval.Until.Unix(),
		ID: i.Approval.ID, Task: r.ID, EvaluationID: i.EvaluationID, Tenant: r.Tenant, Scope: i.Terms.Scope,
		Subject: r.Subject, Resource: i.Resource, Action: i.Action, Members: append([]string{}, i.Bound.Members...),
	}
}
