package pdp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An AccessRequest is the view of an Access Request for approvers.
type AccessRequest struct {
	Status  authzen.TaskStatus `json:"status"`
	Summary string             `json:"summary,omitzero"` // action, resource and arguments in one line of limited length
	approval.Request

	Sheet    string   `json:"sheet,omitzero"`    // digest of the sheet; lists leave it out
	Policies string   `json:"policies,omitzero"` // revision that is in force; lists leave it out
	May      []string `json:"may,omitempty"`     // what the caller can do, as a hint; nil if the caller is not known
	WhyNot   string   `json:"why_not,omitzero"`  // why the caller can neither approve nor deny

	Earlier []approval.Earlier          `json:"earlier,omitempty"` // of each item; lists leave it out
	Asking  [][]evaluation.AskingPolicy `json:"asking,omitempty"`  // of each item, at most mostAsking; lists leave it out

	LookAlikes []LookAlike `json:"look_alikes,omitempty"` // its ids that are easily taken for known ones; only where it is read

	// Capability was issued beside the approval, in the answer to the decision.
	Capability *authzen.Capability `json:"capability,omitempty"`
}

// AccessRequests is a page of a list of Access Requests, without their contexts.
type AccessRequests struct {
	Requests []AccessRequest `json:"requests"`
	Page     *authzen.Page   `json:"page,omitzero"` // token of the next page; nil on the last page
}

// shownInList returns a request without contexts. Each context may be as long as a body.
func (d *approvalsHandler) shownInList(r *approval.Request, allowed approval.Allowed) (jsontext.Value, error) {
	summary, err := d.summary(r)
	if err != nil {
		return nil, err
	}
	short := *r
	short.Context, short.Client = nil, nil
	short.Items = slices.Clone(short.Items)
	for i := range short.Items {
		short.Items[i].Bound.Context = nil
	}
	return d.encode(summary, AccessRequest{Status: r.Status(), Request: short, May: allowed.May, WhyNot: allowed.WhyNot})
}

// encode encodes a request with its values masked. The summary is masked already and is added last:
// masking would mistake its quoted parts for members that are secrets.
func (d *approvalsHandler) encode(summary string, out AccessRequest) (jsontext.Value, error) {
	out.Idempotency, out.Submission, out.Announced = nil, nil, nil
	out.Items = withoutTokens(out.Items)
	text, err := json.Marshal(out, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if text, err = d.mask(text); err != nil {
		return nil, err
	}
	quoted, err := jsontext.AppendQuote([]byte(`{"summary":`), summary)
	if err != nil {
		return nil, fmt.Errorf("encode summary: %w", err)
	}
	return append(append(quoted, ','), text[1:]...), nil
}

// withoutTokens returns items whose votes have no token. A token is a credential, and only its digest
// is shown.
func withoutTokens(items []approval.Item) []approval.Item {
	items = slices.Clone(items)
	for i := range items {
		items[i].Votes = slices.Clone(items[i].Votes)
		for v := range items[i].Votes {
			items[i].Votes[v].IDToken = ""
		}
	}
	return items
}

// answer writes a request, with the digest of its sheet, and what a person can do with it. by is nil if
// nobody is known.
func (d *approvalsHandler) answer(c echo.Context, out AccessRequest, by *approval.Approver) error {
	summary, err := d.summary(&out.Request)
	if err != nil {
		return err
	}
	sheet, err := d.approvals.SheetOf(&out.Request)
	if err != nil {
		return err
	}
	out.Sheet, out.Policies = sheet.Digest, d.approvals.Revision(&out.Request)
	if out.Earlier, err = d.approvals.Earlier(c.Request().Context(), &out.Request); err != nil {
		return err
	}
	if out.Asking, err = d.askingOf(c.Request().Context(), &out.Request); err != nil {
		return err
	}
	if by != nil {
		allowed, err := d.approvals.Allowed(c.Request().Context(), &out.Request, *by)
		if err != nil {
			return err
		}
		out.May, out.WhyNot = allowed.May, allowed.WhyNot
	}
	out.Status = out.Request.Status()
	text, err := d.encode(summary, out)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, text)
}

// mostAsking is the number of items for which an answer has the policies that ask for a person.
const mostAsking = 20

// askingOf returns the policies that ask for a person, for each of the first items.
func (d *approvalsHandler) askingOf(ctx context.Context, r *approval.Request) (all [][]evaluation.AskingPolicy, err error) {
	for _, item := range r.Items[:min(len(r.Items), mostAsking)] {
		one, err := d.asking(ctx, r.Tenant, item.EvaluationID, item.Template)
		if err != nil {
			return nil, err
		}
		all = append(all, append([]evaluation.AskingPolicy{}, one...))
	}
	return all, nil
}

// An Approver identifies the person who decides, as policies know them.
type Approver struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// A Vote is an approver's decision on a request. If callers are authenticated, the approver is the
// caller and Approver is optional.
type Vote struct {
	Approver *Approver `json:"approver,omitzero"`
	approval.Decision
	Capability *VoteCapability `json:"capability,omitempty"` // issued beside the approval
}

// A VoteCapability is what an approver grants beside an approval: the same tool, for a time.
type VoteCapability struct {
	Duration int64           `json:"duration"` // seconds from the decision
	MaxUses  authzen.MaxUses `json:"maxUses,omitzero"`
}

// A Revocation is an approver's request to revoke an approval.
type Revocation struct {
	Approver *Approver `json:"approver,omitzero"`
	Reason   string    `json:"reason,omitzero"`
}

// errOtherApprover means that a vote names an approver other than the caller.
var errOtherApprover = errors.New("the credential is not the approver's")

// An approvalsHandler serves approvers.
type approvalsHandler struct {
	approvals    *approval.Service
	issuer       *capabilityIssuer
	approverType string // entity type of authenticated approvers
	asking       func(ctx context.Context, tenant, evaluationID, template string) ([]evaluation.AskingPolicy, error)
	ids          func(tenant string) map[string][]string // of entities by type
	mask         func(jsontext.Value) (jsontext.Value, error)
	record       func(context.Context, *decisionlog.Entry) error
}

// approver returns the caller. If callers are not authenticated, it returns the approver that the
// body names.
func (d *approvalsHandler) approver(c echo.Context, named *Approver) (approval.Approver, error) {
	who := callerFrom(c.Request().Context())
	switch {
	case who.Unclear != nil:
		return approval.Approver{}, who.Unclear
	case who.ID == "" && named == nil:
		return approval.Approver{}, authzen.Invalid("/approver", "is required: callers are not known, so say who decides (--as TYPE:ID)")
	case who.ID == "" && (named.Type == "" || named.ID == ""):
		return approval.Approver{}, authzen.Invalid("/approver", "needs a type and an id")
	case who.ID == "":
		return approval.Approver{Subject: authzen.Subject{Type: named.Type, ID: named.ID}, Authn: authnOf(who)}, nil
	case named != nil && (named.Type != d.approverType || named.ID != who.ID):
		return approval.Approver{}, fmt.Errorf("%w: it is of %s:%s, and the approver is to be %s:%s; leave the approver out (--as), or send the credential of who decides",
			errOtherApprover, d.approverType, who.ID, named.Type, named.ID)
	}
	by := approval.Approver{Subject: authzen.Subject{Type: d.approverType, ID: who.ID}, Caller: who.ID, Names: who.Names, Clients: who.Clients, Authn: authnOf(who)}
	if person, is := console.IdentityFrom(c.Request().Context()); is {
		by.Channel, by.Authn, by.IDToken = approval.ChannelConsole, person.Authn, person.IDToken
	}
	return by, nil
}

// authnOf returns how a caller proved who it is.
func authnOf(who callers.Caller) *approval.Authn {
	p := who.Proof
	return &approval.Authn{Method: cmp.Or(p.Method, approval.MethodNone), Issuer: p.Issuer, Subject: p.Subject, ACR: p.ACR, AMR: p.AMR, Time: p.Time}
}

// own reports a request of a tenant that is not the caller's as not found.
func own(c echo.Context, r *approval.Request, err error) error {
	if err == nil && !callerFrom(c.Request().Context()).MayAsk(r.Tenant) {
		return approval.ErrUnknownTask
	}
	return err
}

// showRequest shows one Access Request.
func (d *approvalsHandler) showRequest(c echo.Context) error {
	if err := knownQuery(c, paramAs); err != nil {
		return err
	}
	by, err := d.viewer(c)
	if err != nil {
		return err
	}
	if same, err := d.isUnchanged(c, by); same || err != nil {
		return err
	}
	r, err := d.approvals.Request(c.Request().Context(), c.Param(paramID))
	if err := own(c, r, err); err != nil {
		return err
	}
	similar, err := d.lookAlikes(c.Request().Context(), r)
	if err != nil {
		return err
	}
	return d.answer(c, AccessRequest{Request: *r, LookAlikes: similar}, by)
}

// showSheet answers with the sheet of a request. The digest of the body is that of the sheet.
func (d *approvalsHandler) showSheet(c echo.Context) error {
	sheet, r, err := d.approvals.Sheet(c.Request().Context(), c.Param(paramID))
	if err := own(c, r, err); err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, sheet.JSON)
}

// paramAs is the query parameter that names the approver if callers are not authenticated.
const paramAs = "as"

// viewer returns the approver who looks at requests, or nil if callers are not authenticated and the
// query names nobody. A caller whose actors are not known cannot decide.
func (d *approvalsHandler) viewer(c echo.Context) (*approval.Approver, error) {
	var named *Approver
	if c.QueryParams().Has(paramAs) {
		entity, ok := authzen.ParseEntityName(c.QueryParam(paramAs))
		if !ok {
			return nil, authzen.Invalid("", "has an approver in as that is not TYPE:ID")
		}
		named = &Approver{Type: entity.Type, ID: entity.ID}
	}
	who := callerFrom(c.Request().Context())
	if who.Unclear != nil || who.ID == "" && named == nil {
		return nil, nil
	}
	by, err := d.approver(c, named)
	return &by, err
}

// decide records an approver's vote.
func (d *approvalsHandler) decide(c echo.Context) error {
	var body Vote
	if err := decodeKnown(c, &body); err != nil {
		return err
	}
	if body.Items != nil && len(body.Items) == 0 {
		return authzen.Invalid("/items", "names no item: leave it out for all")
	}
	if to := body.To; to != nil && callerFrom(c.Request().Context()).ID != "" && to.Type != d.approverType {
		return authzen.Invalid("/to/type", "must be %s, the type of approvers here", d.approverType)
	}
	return d.change(c, body.Approver, approval.ErrUnknownTask, d.approvals.Request, func(ctx context.Context, id string, by approval.Approver) (out AccessRequest, err error) {
		if body.Capability != nil {
			return d.issuer.decideWith(ctx, id, by, &body)
		}
		r, err := d.approvals.Decide(ctx, id, by, body.Decision)
		if err != nil {
			return out, err
		}
		d.issuer.awaitCompletion(ctx, r)
		return AccessRequest{Request: *r}, nil
	})
}

// revoke revokes an approval, and the capability that was issued with it.
func (d *approvalsHandler) revoke(c echo.Context) error {
	var body Revocation
	if err := decodeKnown(c, &body); err != nil {
		return err
	}
	return d.change(c, body.Approver, approval.ErrUnknownApproval, d.approvals.Approved, func(ctx context.Context, id string, by approval.Approver) (out AccessRequest, err error) {
		r, err := d.approvals.RevokeAfter(ctx, id, by, body.Reason, func(ctx context.Context) error {
			return d.issuer.endApproved(ctx, id, by, body.Reason)
		})
		if err != nil {
			return out, err
		}
		return AccessRequest{Request: *r}, nil
	})
}

// change applies an approver's change to the request that find returns, and writes the result. The
// request must belong to one of the caller's tenants. Otherwise the error is unknown, as for an id that
// does not exist.
func (d *approvalsHandler) change(c echo.Context, named *Approver, unknown error, find func(context.Context, string) (*approval.Request, error),
	apply func(context.Context, string, approval.Approver) (AccessRequest, error)) error {
	by, err := d.approver(c, named)
	if err != nil {
		return err
	}
	ctx, id := c.Request().Context(), c.Param(paramID)
	by.RequestID, by.TraceID = requestID(c), traceID(ctx)
	r, err := find(ctx, id)
	if err != nil {
		return err
	}
	if !callerFrom(ctx).MayAsk(r.Tenant) {
		return unknown
	}
	out, err := apply(ctx, id, by)
	if err != nil {
		return err
	}
	return d.answer(c, out, &by)
}
