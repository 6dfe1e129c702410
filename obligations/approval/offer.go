package approval

import (
	"errors"
	"fmt"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Offer returns what a PEP is told of a denial that an approval would lift. It
// is nil for a request whose actors cannot be read: nobody could say to whom
// the approval belongs.
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
	if !d.WithoutToken || s.config.FindDenial == nil { // without either nothing would prove it
		if offer.BindingToken, err = s.ring().sign(typeBinding, proof); err != nil {
			return nil, err
		}
	}
	if terms.Schema != nil {
		offer.RequestSchemaURL = s.base(d.Tenant) + authzen.PathRequestSchemas + "/" + d.Template
	}
	return offer, nil
}

// base is the URL of the PDP that answers a tenant, which is also who signs
// for it and whom that is for.
func (s *Service) base(tenant string) string {
	if tenant == "" {
		return s.config.BaseURL
	}
	return s.config.BaseURL + "/tenants/" + tenant
}

// window is until when a denial of that time can be requested.
func (s *Service) window(denied time.Time) time.Time {
	return denied.UTC().Truncate(time.Second).Add(s.config.BindingWindow)
}
