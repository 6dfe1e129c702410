package authzen

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An AuthorizeRequest asks for a decision in the words of a tool gateway: may
// this actor of this tenant do this with this resource, for this purpose? It
// is another face of an [EvaluationRequest]. TenantID, Actor.ActorID,
// Actor.ActorType, Action, Resource.Type and Resource.ID are required.
type AuthorizeRequest struct {
	TenantID string            `json:"tenant_id"`
	Actor    Actor             `json:"actor"`
	Action   string            `json:"action"`
	Resource AuthorizeResource `json:"resource"`
	Purpose  string            `json:"purpose,omitzero"`
	Context  jsontext.Value    `json:"context,omitzero"` // a JSON object, or nil
}

// An Actor is the agent or person that acts. Act is a JSON object, or nil.
type Actor struct {
	ActorID      string         `json:"actor_id"`
	ActorType    string         `json:"actor_type"`
	Roles        []string       `json:"roles,omitempty"`
	DepartmentID string         `json:"department_id,omitzero"`
	Act          jsontext.Value `json:"act,omitzero"` // who acts for the actor, as AuthZEN subjects have it
}

// An AuthorizeResource is what is acted on. Labels is a JSON object, or nil.
type AuthorizeResource struct {
	Type   string         `json:"type"`
	ID     string         `json:"id"`
	Labels jsontext.Value `json:"labels,omitzero"`
}

// An AuthorizeResponse answers an [AuthorizeRequest]. Allow with an obligation
// means: allowed once the obligation is met.
type AuthorizeResponse struct {
	Allow       bool                 `json:"allow"`
	Obligations AuthorizeObligations `json:"obligations"`
	Approval    *ApprovalTerms       `json:"approval,omitempty"`
	Reason      string               `json:"reason,omitzero"` // for the person behind the actor
}

// AuthorizeObligations has one member for each kind of obligation; a gateway
// that meets a member it does not know must deny. The values are the
// properties of the AuthZEN obligations of that type.
type AuthorizeObligations struct {
	ApprovalRequired   bool             `json:"approval_required,omitzero"`
	StepUp             []jsontext.Value `json:"step-up,omitempty"`
	Notification       []jsontext.Value `json:"notification,omitempty"`
	SessionTermination []jsontext.Value `json:"session_termination,omitempty"`
	Custom             []jsontext.Value `json:"custom,omitempty"`
}

// ApprovalTerms say by which template a person approves, and prove that an
// approval was asked for. A gateway sends them back as they are.
type ApprovalTerms struct {
	Template     string `json:"template"`
	EvaluationID string `json:"evaluation_id,omitzero"`
	ExpiresAt    string `json:"expires_at,omitzero"`
	BindingToken string `json:"binding_token,omitzero"`
}

// An ApprovalRequest asks for the approval that an answer to an
// [AuthorizeRequest] requires. It is another face of a [Submission].
type ApprovalRequest struct {
	Request  AuthorizeRequest `json:"request"`
	Approval ApprovalTerms    `json:"approval"`
}

// UnmarshalJSONFrom reads a complete request.
func (r *AuthorizeRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "tenant_id", into: r.readTenant, required: true},
		member{name: "actor", into: &r.Actor, required: true},
		member{name: "action", into: &r.Action, required: true},
		member{name: "resource", into: &r.Resource, required: true},
		member{name: "purpose", into: &r.Purpose},
		member{name: "context", into: &r.Context})
}

// readTenant reads the name of a tenant. A name that no tenant can have is refused
// here, so that nothing further on keeps, counts or logs text of any length.
func (r *AuthorizeRequest) readTenant(dec *jsontext.Decoder) (err error) {
	if r.TenantID, err = readText(dec); err != nil {
		return err
	}
	if !ValidTenant(r.TenantID) {
		return Invalid(string(dec.StackPointer()), "is no name of a tenant: it must match %s", tenantName)
	}
	return nil
}

// UnmarshalJSONFrom reads a request with its required members.
func (r *ApprovalRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "request", into: &r.Request, required: true},
		member{name: "approval", into: &r.Approval, required: true})
}

// UnmarshalJSONFrom reads terms with their required template.
func (t *ApprovalTerms) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "template", into: &t.Template, required: true},
		member{name: "evaluation_id", into: &t.EvaluationID},
		member{name: "expires_at", into: &t.ExpiresAt},
		member{name: "binding_token", into: &t.BindingToken})
}

// Submission returns the submission that r stands for.
func (r *ApprovalRequest) Submission() (*Submission, error) {
	e, err := r.Request.Evaluation()
	if err != nil {
		return nil, err
	}
	return &Submission{
		Subject: e.Subject, Resource: &e.Resource, Action: &e.Action, Context: e.Context,
		Denial: &Denial{EvaluationID: r.Approval.EvaluationID, ExpiresAt: r.Approval.ExpiresAt, BindingToken: r.Approval.BindingToken, Template: r.Approval.Template},
	}, nil
}

// UnmarshalJSONFrom reads an actor with its required id and type.
func (a *Actor) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "actor_id", into: &a.ActorID, required: true},
		member{name: "actor_type", into: &a.ActorType, required: true},
		member{name: "roles", into: &a.Roles},
		member{name: "department_id", into: &a.DepartmentID},
		member{name: "act", into: &a.Act})
}

// UnmarshalJSONFrom reads a resource with its required type and id.
func (r *AuthorizeResource) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return unmarshalMembers(dec,
		member{name: "type", into: &r.Type, required: true},
		member{name: "id", into: &r.ID, required: true},
		member{name: "labels", into: &r.Labels})
}

// Evaluation returns the AuthZEN request that r stands for: the actor is the
// subject, with roles, department_id and act as properties; labels are the
// resource's properties; the purpose is in the context. A gateway that speaks
// this shape knows that an answer may carry obligations of every type, so the
// request declares them.
func (r *AuthorizeRequest) Evaluation() (*EvaluationRequest, error) {
	context := []field{{"supported_obligations", ObligationTypes()}}
	if r.Purpose != "" {
		context = append(context, field{"purpose", r.Purpose})
	}
	joined, err := extend(r.Context, context)
	if err != nil {
		return nil, err
	}
	var properties []field
	if len(r.Actor.Roles) > 0 {
		properties = append(properties, field{"roles", r.Actor.Roles})
	}
	if r.Actor.DepartmentID != "" {
		properties = append(properties, field{"department_id", r.Actor.DepartmentID})
	}
	if r.Actor.Act != nil {
		properties = append(properties, field{"act", r.Actor.Act})
	}
	subject, err := extend(nil, properties)
	if err != nil {
		return nil, err
	}
	return &EvaluationRequest{
		Subject:  Subject{Type: r.Actor.ActorType, ID: r.Actor.ActorID, Properties: subject},
		Action:   Action{Name: r.Action},
		Resource: Resource{Type: r.Resource.Type, ID: r.Resource.ID, Properties: r.Resource.Labels},
		Context:  joined,
	}, nil
}

// places are where an AuthZEN request made by [AuthorizeRequest.Evaluation] has
// what stands elsewhere in the request it was made of.
var places = []struct{ evaluation, authorize string }{
	{"/subject/properties/roles", "/actor/roles"},
	{"/subject/properties/department_id", "/actor/department_id"},
	{"/subject/properties/act", "/actor/act"},
	{"/subject/type", "/actor/actor_type"},
	{"/subject/id", "/actor/actor_id"},
	{"/subject", "/actor"},
	{"/action/name", "/action"},
	{"/resource/properties", "/resource/labels"},
	{"/context/purpose", "/purpose"},
}

// Located returns a complaint about the AuthZEN request as one about the request
// it was made of.
func (r *AuthorizeRequest) Located(e *ValidationError) *ValidationError {
	for _, p := range places {
		if rest, ok := strings.CutPrefix(e.Path, p.evaluation); ok && (rest == "" || rest[0] == '/') {
			return Invalid(p.authorize+rest, "%s", e.Reason)
		}
	}
	return e
}

type field struct {
	name  string
	value any
}

// extend returns the object with the fields behind its own members. It is nil
// where there are neither.
func extend(object jsontext.Value, fields []field) (jsontext.Value, error) {
	if len(fields) == 0 {
		return object, nil
	}
	body := bytes.TrimSpace(object)
	if len(body) > 0 {
		body = bytes.TrimSpace(body[1 : len(body)-1])
	}
	joined := append(jsontext.Value{'{'}, body...)
	for _, f := range fields {
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", f.name, err)
		}
		if len(joined) > 1 {
			joined = append(joined, ',')
		}
		joined = append(fmt.Appendf(joined, "%q:", f.name), value...)
	}
	joined = append(joined, '}')
	if !joined.IsValid() {
		return nil, Invalid("/context", "must not have purpose or supported_obligations of its own")
	}
	return joined, nil
}

// Authorize returns the answer of this shape for an AuthZEN decision.
func Authorize(d *Decision) (*AuthorizeResponse, error) {
	response := &AuthorizeResponse{Allow: d.Decision}
	if d.Context == nil {
		return response, nil
	}
	response.Reason = d.Context.ReasonUser["en"]
	for _, o := range d.Context.Obligations {
		if err := response.oblige(o); err != nil {
			return nil, err
		}
	}
	return response, nil
}

func (r *AuthorizeResponse) oblige(o Obligation) error {
	switch o.Type {
	case ObligationStepUp:
		r.Obligations.StepUp = append(r.Obligations.StepUp, o.Properties)
	case ObligationNotification:
		r.Obligations.Notification = append(r.Obligations.Notification, o.Properties)
	case ObligationSessionTermination:
		r.Obligations.SessionTermination = append(r.Obligations.SessionTermination, o.Properties)
	case ObligationCustom:
		return r.obligeCustom(o)
	default:
		return fmt.Errorf("obligation %s: unknown type %q", o.ID, o.Type)
	}
	return nil
}

func (r *AuthorizeResponse) obligeCustom(o Obligation) error {
	var custom struct {
		Action any `json:"action"` // of any type: custom properties are what was agreed on
	}
	if err := json.Unmarshal(o.Properties, &custom); err != nil {
		return fmt.Errorf("obligation %s: %w", o.ID, err)
	}
	if custom.Action != ActionApprovalRequired {
		r.Obligations.Custom = append(r.Obligations.Custom, o.Properties)
		return nil
	}
	var approval ApprovalRequired
	if err := json.Unmarshal(o.Properties, &approval); err != nil {
		return fmt.Errorf("obligation %s: %w", o.ID, err)
	}
	r.Obligations.ApprovalRequired = true
	r.Approval = &ApprovalTerms{Template: approval.Template, EvaluationID: approval.EvaluationID}
	if offer := approval.AccessRequest; offer != nil {
		r.Approval.ExpiresAt, r.Approval.BindingToken = offer.ExpiresAt.Format(time.RFC3339), offer.BindingToken
	}
	return nil
}
