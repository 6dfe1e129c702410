package pdp

import (
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A StandingApproval is an approval that can still be used.
type StandingApproval struct {
	ID        string          `json:"id"`
	Task      string          `json:"task"`
	Tenant    string          `json:"tenant,omitzero"`
	Summary   string          `json:"summary"`
	Subject   authzen.Subject `json:"subject"` // type and id
	Template  string          `json:"template"`
	Scope     string          `json:"scope"`
	At        time.Time       `json:"at"`
	Until     time.Time       `json:"until"`
	UsesLeft  int             `json:"uses_left,omitzero"` // 0 if uses are not counted
	Approvers []Approver      `json:"approvers"`
}

// StandingApprovals is a page of approvals that can still be used, those that end first at first.
type StandingApprovals struct {
	Approvals []StandingApproval `json:"approvals"`
	Page      *authzen.Page      `json:"page,omitzero"` // token of the next page; nil on the last page
}

// standing answers with a page of the approvals of the caller's tenants that can still be used.
func (d *approvalsHandler) standing(c echo.Context) error {
	if err := knownQuery(c, "standing", "tenant", "limit", "token"); err != nil {
		return err
	}
	if c.QueryParam("standing") != "true" {
		return authzen.Invalid("", "needs standing=true: approvals that have ended are in their requests")
	}
	tenants, limit, err := listBounds(c)
	if err != nil {
		return err
	}
	if same, err := d.isListUnchanged(c, tenants); same || err != nil {
		return err
	}
	out := StandingApprovals{Approvals: []StandingApproval{}}
	last := ""
	for one, err := range d.approvals.Standing(c.Request().Context(), tenants, c.QueryParam("token")) {
		if errors.Is(err, approval.ErrPage) {
			err = authzen.Invalid("", "has a token that is none of a page of this list")
		}
		if err != nil {
			return err
		}
		if len(out.Approvals) == limit {
			out.Page = &authzen.Page{NextToken: last, Count: limit}
			break
		}
		shown, err := d.shownStanding(&one)
		if err != nil {
			return err
		}
		out.Approvals, last = append(out.Approvals, shown), one.Token
	}
	return writeJSON(c, http.StatusOK, out)
}

// shownStanding returns an approval as approvers see it.
func (d *approvalsHandler) shownStanding(one *approval.Standing) (s StandingApproval, err error) {
	item := &one.Items[one.Item]
	only := *one.Request
	only.Items = []approval.Item{*item}
	s = StandingApproval{
		ID: item.Approval.ID, Task: one.ID, Tenant: one.Tenant, Subject: authzen.Subject{Type: one.Subject.Type, ID: one.Subject.ID},
		Template: item.Template, Scope: string(item.Terms.Scope), At: item.Approval.At, Until: item.Approval.Until, UsesLeft: one.UsesLeft, Approvers: []Approver{},
	}
	for _, vote := range item.Votes {
		s.Approvers = append(s.Approvers, Approver{vote.Approver.Type, vote.Approver.ID})
	}
	s.Summary, err = d.summary(&only)
	return s, err
}
