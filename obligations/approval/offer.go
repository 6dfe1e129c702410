package approval

import (
	"errors"
	"fmt"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Offer returns the part of a denial that lets the PEP submit an Access Request. It returns nil if
// the actors of the request cannot be parsed, because the approval could not be bound to them.
func (s *Service) Offer(d *authzen.RequestableDenial) (*authzen.AccessRequest, error) {
	terms, err := s.config.Template(d.Tenant, d.Template)
	if err != nil {
		return nil, fmt.Errorf("approval template %q: %w", d.Template, err)
	}
	expires := s.window(d.Time)
	proof, err := newProof(d, terms.Context, expires, s.base(d.Tenant))
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	offer := &authzen.AccessRequest{Template: d.Template, ExpiresAt: expires, Display: terms.Display}
	if !d.WithoutToken || s.config.FindDenial == nil { // otherwise nothing could prove the denial
		if offer.BindingToken, err = s.ring().sign(typeBinding, proof); err != nil {
			return nil, err
		}
	}
	if terms.Schema != nil {
		offer.RequestSchemaURL = s.base(d.Tenant) + authzen.PathRequestSchemas + "/" + d.Template
	}
	return offer, nil
}

// base returns the URL of a tenant's PDP. It is both issuer and audience of tokens.
func (s *Service) base(tenant string) string {
	if tenant == "" {
		return s.config.BaseURL
	}
	return s.config.BaseURL + "/tenants/" + tenant
}

// window returns the time until which a denial can be submitted.
func (s *Service) window(denied time.Time) time.Time {
	return denied.UTC().Truncate(time.Second).Add(s.config.BindingWindow)
}
