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

// ErrCapabilityDenied means that policies deny a capability.
var ErrCapabilityDenied = errors.New("policies deny the capability")

// RequestCapability asks for a capability. It is active at once, or pending until people have decided
// on its task. The idempotency key makes a retry safe. If policies deny the capability, the error is
// [ErrCapabilityDenied] and a [StatusError].
//
// An active capability is no permission: only an evaluation decides on access. It is found by the
// subject of the evaluation. Its id may be sent as context.capability.
func (c *Client) RequestCapability(ctx context.Context, key string, s *authzen.CapabilitySubmission) (*authzen.CapabilityResponse, error) {
	r, err := c.request(ctx, http.MethodPost, c.capabilityURL(""), s)
	if err != nil {
		return nil, fmt.Errorf("request capability: %w", err)
	}
	r.Header.Set("Idempotency-Key", key)
	var answer capability
	if _, err := c.do(r, &answer, http.StatusCreated, http.StatusAccepted); err != nil {
		return nil, fmt.Errorf("request capability: %w", capabilityError(err))
	}
	return &answer.CapabilityResponse, nil
}

// Capability returns a capability that this PEP has asked for. The PDP may wait up to wait, in whole
// seconds, for the decision on a pending one (Prefer: wait, RFC 7240, section 4.3).
func (c *Client) Capability(ctx context.Context, id string, wait time.Duration) (*authzen.CapabilityResponse, error) {
	r, err := c.request(ctx, http.MethodGet, c.capabilityURL("/"+url.PathEscape(id)), nil)
	if err != nil {
		return nil, fmt.Errorf("capability: %w", err)
	}
	answer := capability{id: id}
	if _, err := c.waiting(r, wait).do(r, &answer, http.StatusOK); err != nil {
		return nil, fmt.Errorf("capability: %w", err)
	}
	return &answer.CapabilityResponse, nil
}

// Capabilities returns the pending and active capabilities of a holder that this PEP has asked for.
func (c *Client) Capabilities(ctx context.Context, holder authzen.Subject) ([]authzen.Capability, error) {
	query := url.Values{"holder": {holder.Type + ":" + holder.ID}}
	r, err := c.request(ctx, http.MethodGet, c.capabilityURL("")+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	var answer capabilities
	if _, err := c.do(r, &answer, http.StatusOK); err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	return answer.Capabilities, nil
}

// RevokeCapability gives a capability back that this PEP has asked for. A pending one is withdrawn.
func (c *Client) RevokeCapability(ctx context.Context, id, reason string) (*authzen.Capability, error) {
	r, err := c.request(ctx, http.MethodPost, c.capabilityURL("/"+url.PathEscape(id)+"/revoke"), authzen.Cancellation{Comment: reason})
	if err != nil {
		return nil, fmt.Errorf("revoke capability: %w", err)
	}
	answer := capability{id: id}
	if _, err := c.do(r, &answer, http.StatusOK); err != nil {
		return nil, fmt.Errorf("revoke capability: %w", err)
	}
	return &answer.Capability, nil
}

// Introspect says whether a capability, named by its id or its token, can be used now. It takes no use,
// and says nothing about one that cannot be used.
func (c *Client) Introspect(ctx context.Context, named authzen.IntrospectionRequest) (*authzen.Introspection, error) {
	r, err := c.request(ctx, http.MethodPost, c.capabilityURL("/introspect"), named)
	if err != nil {
		return nil, fmt.Errorf("introspect: %w", err)
	}
	var answer introspection
	if _, err := c.do(r, &answer, http.StatusOK); err != nil {
		return nil, fmt.Errorf("introspect: %w", err)
	}
	if id := answer.ID; named.ID != "" && id != "" && id != named.ID {
		return nil, fmt.Errorf("introspect: the answer is about capability %q, not %q", id, named.ID)
	}
	return &answer.Introspection, nil
}

func (c *Client) capabilityURL(path string) string {
	return strings.TrimSuffix(c.base, "/") + authzen.PathCapabilities + path
}

// capabilityError marks the denial of a capability.
func capabilityError(err error) error {
	var status *StatusError
	if errors.As(err, &status) && status.Type == authzen.ProblemCapabilityDenied {
		return fmt.Errorf("%w: %w", ErrCapabilityDenied, err)
	}
	return err
}

// Requirements on answers about capabilities.
var (
	errNoCapability   = errors.New("there is no capability with an id and a status")
	errNoCapabilities = errors.New("there are no capabilities")
	errNotActive      = errors.New("an active capability has an id, and active is required")
)

// capability is an authzen.CapabilityResponse about the capability with that id; "" is any.
type capability struct {
	authzen.CapabilityResponse
	id string
}

func (a *capability) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := json.UnmarshalDecode(dec, &a.CapabilityResponse); err != nil {
		return err
	}
	switch {
	case a.Capability.ID == "" || a.Capability.Status == "":
		return errNoCapability
	case a.id != "" && a.Capability.ID != a.id:
		return fmt.Errorf("the answer is about capability %q, not %q", a.Capability.ID, a.id)
	}
	return nil
}

// capabilities is an authzen.CapabilityList with a required member capabilities.
type capabilities struct{ authzen.CapabilityList }

func (a *capabilities) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := json.UnmarshalDecode(dec, &a.CapabilityList); err != nil {
		return err
	}
	if a.CapabilityList.Capabilities == nil {
		return errNoCapabilities
	}
	return nil
}

// introspection is an authzen.Introspection with a required member active, and with an id if it is true.
type introspection struct{ authzen.Introspection }

func (a *introspection) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	text, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var required struct {
		Active *bool `json:"active"`
	}
	if err := errors.Join(json.Unmarshal(text, &required), json.Unmarshal(text, &a.Introspection)); err != nil {
		return err
	}
	if required.Active == nil || *required.Active != (a.ID != "") {
		return errNotActive
	}
	return nil
}
