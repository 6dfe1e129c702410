package pdp

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/obligations/approval"
)

// A Reveal asks for one value of a request that its sheet masks.
type Reveal struct {
	Approver *Approver        `json:"approver,omitzero"`
	Path     jsontext.Pointer `json:"path"` // of a masked value in the sheet
}

// A Revealed is the value.
type Revealed struct {
	Path  jsontext.Pointer `json:"path"`
	Value jsontext.Value   `json:"value"`
}

// A revealAct is the entry of a reveal.
type revealAct struct {
	Action string           `json:"action"`
	By     string           `json:"by"` // TYPE:ID
	Task   string           `json:"task"`
	Path   jsontext.Pointer `json:"path"`

	Channel string          `json:"channel,omitzero"`
	Authn   *approval.Authn `json:"authn,omitempty"`
}

// reveal answers with a value of a request without its mask, to those whom the policies would let approve
// or deny the request. The entry about it is on disk first.
func (d *approvalsHandler) reveal(c echo.Context) error {
	var body Reveal
	if err := decodeKnown(c, &body); err != nil {
		return err
	}
	by, err := d.approver(c, body.Approver)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	r, err := d.approvals.Request(ctx, c.Param(paramID))
	if err := own(c, r, err); err != nil {
		return err
	}
	allowed, err := d.approvals.Allowed(ctx, r, by)
	if err != nil {
		return err
	}
	if !slices.Contains(allowed.May, approval.MayApprove) && !slices.Contains(allowed.May, approval.MayDeny) {
		return approval.ErrIneligible
	}
	value, err := d.approvals.Unmasked(r, body.Path)
	if err != nil {
		return err
	}
	if err := d.recordReveal(ctx, r, by, body.Path); err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, Revealed{body.Path, value})
}

// recordReveal appends the entry of a reveal to the log.
func (d *approvalsHandler) recordReveal(ctx context.Context, r *approval.Request, by approval.Approver, path jsontext.Pointer) error {
	entry, err := adminEntry(revealAct{Action: "reveal", By: by.Type + ":" + by.ID, Task: r.ID, Path: path, Channel: by.Channel, Authn: by.Authn})
	if err != nil {
		return err
	}
	entry.Tenant, entry.Caller = r.Tenant, by.Caller
	return d.record(ctx, entry)
}
