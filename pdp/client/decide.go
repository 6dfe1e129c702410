package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// pathDesk is the path of Access Requests on the admin listener.
const pathDesk = "/admin/v1/requests/"

// Decisions of a [Vote].
const (
	Approve  = "approve"
	Deny     = "deny"
	Delegate = "delegate" // to another person, who then decides alone
)

// A Vote is a person's decision on an Access Request.
type Vote struct {
	// Approver is who decides. A listener that authenticates callers knows that by the credential,
	// and refuses another name.
	Approver      *authzen.Subject `json:"approver,omitempty"`
	Decision      string           `json:"decision"` // Approve, Deny or Delegate
	Comment       string           `json:"comment,omitzero"`
	ApprovedUntil time.Time        `json:"approved_until,omitzero"` // ends the approval earlier than its template does
	To            *authzen.Subject `json:"to,omitempty"`            // who decides from now on, of a delegation
	Arguments     jsontext.Value   `json:"arguments,omitzero"`      // object of arguments of the call that the approver changes
}

// Decide records a person's vote on the task of an Access Request. The Client's base URL is that of
// the admin listener. The status may still be pending: a template may need several votes, and a delegation decides nothing. If policies
// do not let the person decide, the error is a [StatusError] with status 403.
func (c *Client) Decide(ctx context.Context, task string, v *Vote) (authzen.TaskStatus, error) {
	endpoint := strings.TrimSuffix(c.base, "/") + pathDesk + url.PathEscape(task) + "/decision"
	r, err := c.request(ctx, http.MethodPost, endpoint, v)
	if err != nil {
		return "", fmt.Errorf("decide: %w", err)
	}
	var answer decided
	if _, err := c.do(r, &answer, http.StatusOK); err != nil {
		return "", fmt.Errorf("decide: %w", err)
	}
	return answer.Status, nil
}

var errNoStatus = errors.New("there is no status")

// decided is the answer to a vote.
type decided struct {
	Status authzen.TaskStatus `json:"status"`
}

func (a *decided) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain decided
	if err := json.UnmarshalDecode(dec, (*plain)(a)); err != nil {
		return err
	}
	if a.Status == "" {
		return errNoStatus
	}
	return nil
}
