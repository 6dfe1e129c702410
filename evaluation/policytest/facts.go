package policytest

import (
	"cmp"
	"errors"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An approval is the active approval of the request.
type approval struct {
	Template  string   `yaml:"template"`
	Approvers []person `yaml:"approvers,omitempty"`
	Until     string   `yaml:"until,omitempty"`
	Channel   string   `yaml:"channel,omitempty"`
	UsesLeft  int      `yaml:"uses_left,omitempty"`
}

type person struct {
	Type string `yaml:"type"`
	ID   string `yaml:"id"`
}

// verified returns the approval as the service would have verified it.
func (a *approval) verified() (*authzen.VerifiedApproval, error) {
	if a == nil {
		return nil, nil
	}
	if a.Template == "" {
		return nil, errors.New("approval: template is required")
	}
	until, err := moment("approval: until", a.Until)
	if err != nil {
		return nil, err
	}
	out := &authzen.VerifiedApproval{Template: a.Template, Until: until, Channel: a.Channel, UsesLeft: a.UsesLeft}
	out.Approvers = subjects(a.Approvers)
	return out, nil
}

// approvalOf is the inverse of verified.
func approvalOf(a *authzen.VerifiedApproval) *approval {
	if a == nil {
		return nil
	}
	return &approval{Template: a.Template, Approvers: people(a.Approvers), Until: a.Until.UTC().Format(time.RFC3339Nano), Channel: a.Channel, UsesLeft: a.UsesLeft}
}

// capabilityOf is the inverse of verified.
func capabilityOf(c *authzen.VerifiedCapability) *capability {
	if c == nil {
		return nil
	}
	out := &capability{
		ID: c.ID, Template: c.Template, Approvers: people(c.Approvers), Until: c.Until.UTC().Format(time.RFC3339Nano),
		UsesLeft: c.UsesLeft, Bound: c.Bound, Depth: c.Depth,
	}
	if c.Issuer != nil {
		out.Issuer = &person{c.Issuer.Type, c.Issuer.ID}
	}
	return out
}

func people(subjects []authzen.Subject) (all []person) {
	for _, s := range subjects {
		all = append(all, person{s.Type, s.ID})
	}
	return all
}

func subjects(people []person) (all []authzen.Subject) {
	for _, by := range people {
		all = append(all, authzen.Subject{Type: by.Type, ID: by.ID})
	}
	return all
}

// A capability is the active capability that covers the request.
type capability struct {
	ID        string   `yaml:"id,omitempty"`
	Issuer    *person  `yaml:"issuer,omitempty"`
	Template  string   `yaml:"template,omitempty"`
	Approvers []person `yaml:"approvers,omitempty"`
	Until     string   `yaml:"until,omitempty"`
	UsesLeft  int      `yaml:"uses_left,omitempty"`
	Bound     string   `yaml:"bound,omitempty"`
	Depth     int      `yaml:"depth,omitempty"`
}

// verified returns the capability as the service would have verified it.
func (c *capability) verified() (*authzen.VerifiedCapability, error) {
	if c == nil {
		return nil, nil
	}
	until, err := moment("capability: until", c.Until)
	if err != nil {
		return nil, err
	}
	out := &authzen.VerifiedCapability{
		ID: cmp.Or(c.ID, "cap_test"), Template: c.Template, Approvers: subjects(c.Approvers), Until: until,
		UsesLeft: c.UsesLeft, Bound: cmp.Or(c.Bound, "identity"), Depth: c.Depth,
	}
	if c.Issuer != nil {
		out.Issuer = &authzen.Subject{Type: c.Issuer.Type, ID: c.Issuer.ID}
	}
	return out, nil
}
