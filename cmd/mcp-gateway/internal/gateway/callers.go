package gateway

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
)

// callers tells who calls.
type callers struct {
	*identity.Verifier                 // nil where nobody has a credential
	local              *enforce.Caller // of who has none, or nil
}

// newCallers returns the callers of a configuration. Proofs are those that were used
// before, also under former configurations; nil is none.
func newCallers(cfg *identityConfig, proofs *identity.Proofs) (*callers, error) {
	c := new(callers)
	if local := cfg.Local; local != nil {
		known, err := identity.New(identity.Config{Process: local})
		if err != nil {
			return nil, err
		}
		caller, err := known.Environment(context.Background(), func(string) string { return "" })
		if err != nil {
			return nil, err
		}
		c.local = callerOf(caller)
		if len(cfg.Issuers) == 0 && cfg.MTLS == nil && cfg.Process == nil {
			return c, nil
		}
	}
	of := cfg.Config
	of.Proofs = proofs
	var err error
	c.Verifier, err = identity.New(of)
	return c, err
}

// at returns the callers of the endpoint at a URL, "" for one that has none.
func (c *callers) at(url string) (*callers, error) {
	if c.Verifier == nil || url == "" {
		return c, nil
	}
	v, err := c.At(url)
	return &callers{v, c.local}, err
}

// Identify implements [proxy.Callers].
func (c *callers) Identify(r *http.Request) (*enforce.Caller, error) {
	if c.Verifier == nil {
		return c.local, nil
	}
	caller, err := c.Verify(r)
	if errors.Is(err, identity.ErrNone) && c.local != nil {
		return c.local, nil
	}
	if err != nil {
		return nil, err
	}
	return callerOf(caller), nil
}

// environment tells who started the gateway as a child process.
func (c *callers) environment(ctx context.Context) (*enforce.Caller, error) {
	if c.Verifier == nil {
		return c.local, nil
	}
	caller, err := c.Environment(ctx, os.Getenv)
	if errors.Is(err, identity.ErrNone) && c.local != nil {
		return c.local, nil
	}
	if err != nil {
		return nil, err
	}
	return callerOf(caller), nil
}

func callerOf(c *identity.Caller) *enforce.Caller {
	return &enforce.Caller{Subject: c.Subject, Claims: c.Claims, Tenant: c.Tenant, Token: enforce.NewToken(c.Token), JKT: c.JKT}
}
