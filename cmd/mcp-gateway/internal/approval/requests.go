package approval

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
)

// Attaches implements [enforce.Requests].
func (s *Service) Attaches(c *enforce.Call, digest string) (bool, error) {
	r, err := s.store.current(keyOf(c.Caller, digest, c.Requested))
	return r != nil && (r.waits() || r.untold()), err
}

// Request implements [enforce.Requests].
func (s *Service) Request(tenant, id string) (*enforce.Request, error) {
	r, err := s.request(tenant, id)
	if r == nil || err != nil {
		return nil, err
	}
	return r.asRequest()
}

// request returns the call of a tenant that somebody else can carry out, or nil.
func (s *Service) request(tenant, id string) (*record, error) {
	if !strings.HasPrefix(id, handlePrefix) {
		return nil, nil
	}
	r, err := s.store.byHandle(id)
	if err != nil || r == nil || r.Tenant != tenant || !r.isRequest() {
		return nil, err
	}
	return r, nil
}

// isRequest reports whether another participant can carry out the call, or could
// before.
func (r *record) isRequest() bool { return r.Method == wire.MethodToolsCall && r.State != asking }

// Requests lists the calls of a tenant that wait and that another participant can carry
// out, the oldest first.
func (s *Service) Requests(tenant string) (all []*enforce.Request, err error) {
	err = s.store.all(func(r *record) error {
		if r.Tenant != tenant || !r.isRequest() || !r.waits() || !s.cfg.Now().Before(r.decideBy()) {
			return nil
		}
		request, err := r.asRequest()
		all = append(all, request)
		return err
	})
	slices.SortFunc(all, func(a, b *enforce.Request) int { return a.Created.Compare(b.Created) })
	return all, err
}

func (r *record) asRequest() (*enforce.Request, error) {
	params := new(wire.Params)
	if err := json.Unmarshal(r.Params, params); err != nil {
		return nil, err
	}
	return &enforce.Request{
		ID: r.Handle, Tenant: r.Tenant, Requester: r.Subject, Actors: r.Actors, Server: r.Server, Tool: r.Name, Arguments: params.Arguments,
		Digest: r.Digest, Template: r.Template, Reason: plain.Text(r.Why), Tasks: r.tasks(), Created: r.Created, Expires: r.decideBy(),
	}, nil
}

// Withdraw ends a request of a caller that waits, with a reason for the PDP.
func (s *Service) Withdraw(ctx context.Context, c *enforce.Caller, id, reason string) error {
	r, err := s.request(c.Tenant, id)
	if err != nil {
		return err
	}
	if r == nil || !r.belongsTo(c) {
		return enforce.UnknownRequest()
	}
	if r.State == waiting {
		s.finishAs(ctx, r, enforce.ReasonWithdrawn, "", reason)
		if err := s.reload(r); err != nil {
			return err
		}
	}
	if r.State != refused {
		return consumed()
	}
	return nil
}
