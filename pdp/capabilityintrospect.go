package pdp

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// introspect tells a server that verifies capabilities itself whether one can be used now. It takes no
// use. The answer is the same for a capability that does not exist and for another tenant's.
func (h *capabilitiesHandler) introspect(c echo.Context) error {
	tenant, err := tenantOf(c)
	if err != nil {
		return err
	}
	var body authzen.IntrospectionRequest
	admitted, err := h.limits.decode(c, h.maxBody, &body)
	if err != nil {
		return err
	}
	defer admitted.release()
	return h.limits.deadline.Run(c.Request().Context(), func(ctx context.Context) error {
		found, err := h.issuer.usable(ctx, tenant, &body)
		if errors.Is(err, capability.ErrUnknown) {
			return writeJSON(c, http.StatusOK, authzen.Introspection{})
		}
		if err != nil {
			return err
		}
		return writeJSON(c, http.StatusOK, introspection(found))
	})
}

// revoked answers with the signed list of the revoked capabilities of a tenant, for servers that verify
// tokens themselves.
func (h *capabilitiesHandler) revoked(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	tenant, err := tenantOf(c)
	if err != nil {
		return err
	}
	return h.limits.deadline.Run(c.Request().Context(), func(ctx context.Context) error {
		list, err := h.issuer.store.Revocations(ctx, tenant)
		if err != nil {
			return err
		}
		return sendBody(c, http.StatusOK, "application/jwt", []byte(list))
	})
}

// usable returns the capability that a request names, if its holder can use it now. Otherwise the error
// is [capability.ErrUnknown].
func (i *capabilityIssuer) usable(ctx context.Context, tenant string, named *authzen.IntrospectionRequest) (*capability.Capability, error) {
	id := named.ID
	if named.Token != "" {
		var err error
		if id, err = i.store.IDOf(tenant, named.Token); err != nil || named.ID != "" && named.ID != id {
			return nil, capability.ErrUnknown
		}
	}
	return i.store.Usable(ctx, tenant, id)
}

// introspection describes a capability that can be used.
func introspection(c *capability.Capability) authzen.Introspection {
	shown := shownCapability(c)
	out := authzen.Introspection{
		Active: true, ID: c.ID, Holder: &c.Holder, Tools: c.Tools,
		NotBefore: c.Constraints.ValidFrom.Unix(), Expires: c.Constraints.ValidUntil.Unix(),
		UsesLeft: shown.UsesLeft, Constraints: shown.Constraints, Bound: c.Bound, Issuer: c.Issuer,
	}
	if c.Key != nil {
		out.Key = &authzen.Confirmation{JKT: c.Key.JKT}
	}
	return out
}
