package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Requests keeps the calls that wait, and that another participant can carry out.
type Requests interface {
	// Request returns the request of a tenant with an id, or nil.
	Request(tenant, id string) (*enforce.Request, error)
	// Requests lists those of a tenant that wait.
	Requests(tenant string) ([]*enforce.Request, error)
	// Withdraw ends a request of a caller. Its error is a [enforce.Refusal] if the caller
	// has no such request, or it does not wait any more.
	Withdraw(ctx context.Context, c *enforce.Caller, id, reason string) error
}

// A pendingRequest is a request as those see it who may fulfil it.
type pendingRequest struct {
	RequestID     string         `json:"requestId"`
	Requester     string         `json:"requester"`
	RequesterType string         `json:"requesterType"`
	Target        string         `json:"target"` // server
	Tool          string         `json:"tool"`   // as it is called at this endpoint
	Arguments     jsontext.Value `json:"arguments"`
	Reason        string         `json:"reason,omitzero"`
	Task          string         `json:"task,omitzero"` // access request that people decide on
	Created       time.Time      `json:"created"`
	Expires       time.Time      `json:"expires"`
}

type pendingList struct {
	Requests []pendingRequest `json:"requests"`
	More     bool             `json:"more,omitzero"` // others wait that were not looked at
}

// Bounds of a list: the requests that are shown, those of which the PDP is asked at
// once, and all of which it is asked.
const (
	maxListed = 100
	maxAsked  = 50
	maxLooked = 500
)

func (q *query) requests(ctx context.Context) (any, error) {
	if err := q.read(q.call.Message.Params, &struct{}{}); err != nil {
		return nil, err
	}
	return q.pending(ctx)
}

func (q *query) pendingRequests(ctx context.Context) (any, error) {
	if err := q.read(q.call.Params.Arguments, &struct{}{}); err != nil {
		return nil, err
	}
	return q.pending(ctx)
}

// pending lists the requests that the caller may fulfil.
func (q *query) pending(ctx context.Context) (any, error) {
	all, err := q.cfg.Requests.Requests(q.call.Caller.Tenant)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r *enforce.Request) bool { return !q.serves(r.Server) || r.Excludes(q.call.Caller) })
	list := pendingList{Requests: []pendingRequest{}, More: len(all) > maxLooked}
	for some := range slices.Chunk(all[:min(len(all), maxLooked)], maxAsked) {
		permitted, err := q.cfg.MayFulfil(ctx, q.call, some)
		if err != nil {
			return nil, err
		}
		for i, r := range some {
			switch {
			case !permitted[i]:
			case len(list.Requests) == maxListed:
				list.More = true
			default:
				list.Requests = append(list.Requests, q.shownRequest(r))
			}
		}
	}
	return &list, nil
}

// serves reports whether the endpoint of the call is one of a server.
func (q *query) serves(server string) bool {
	if slices.Contains(q.cfg.Servers(), q.call.Server) {
		return server == q.call.Server
	}
	_, ok := q.names.Inner(server + ":*") // an endpoint over several servers
	return ok
}

// toolName returns the name with which the endpoint calls the tool of a request.
func (q *query) toolName(r *enforce.Request) string {
	if r.Server == q.call.Server {
		return r.Tool
	}
	return q.names.Outer(r.Server + ":" + r.Tool)
}

func (q *query) shownRequest(r *enforce.Request) pendingRequest {
	shown := pendingRequest{
		RequestID: r.ID, Requester: r.Requester.ID, RequesterType: r.Requester.Type, Target: r.Server, Tool: q.toolName(r),
		Arguments: r.Arguments, Reason: r.Reason, Created: r.Created.UTC(), Expires: r.Expires.UTC(),
	}
	if shown.Arguments == nil {
		shown.Arguments = jsontext.Value("{}")
	}
	if len(r.Tasks) > 0 {
		shown.Task = r.Tasks[0]
	}
	return shown
}

// withdrawals are the reasons of a withdrawal, the first the default.
var withdrawals = []string{"no_longer_needed", "duplicate", "busy", "policy", "unsafe"}

// withdraw ends a request of the caller.
func (q *query) withdraw(ctx context.Context) (any, error) {
	var asked struct {
		RequestID string `json:"requestId"`
		Reason    string `json:"reason"`
	}
	if err := q.read(q.call.Message.Params, &asked); err != nil {
		return nil, err
	}
	if asked.Reason == "" {
		asked.Reason = withdrawals[0]
	}
	if !slices.Contains(withdrawals, asked.Reason) {
		return nil, invalid("/reason must be one of %s", strings.Join(withdrawals, ", "))
	}
	found, err := q.cfg.Requests.Request(q.call.Caller.Tenant, asked.RequestID)
	if err != nil {
		return nil, err
	}
	if found == nil || !q.serves(found.Server) {
		return nil, enforce.UnknownRequest()
	}
	if err := q.cfg.Requests.Withdraw(ctx, q.call.Caller, asked.RequestID, asked.Reason); err != nil {
		return nil, err
	}
	return struct {
		RequestID string `json:"requestId"`
		Status    string `json:"status"`
		Reason    string `json:"reason"`
	}{asked.RequestID, "withdrawn", asked.Reason}, nil
}

// Rewrite implements [enforce.Access].
func (s *Service) Rewrite(ctx context.Context, c *enforce.Call) (*wire.Message, error) {
	return s.RewriteAt(ctx, c, s.namesOf(c.Server))
}

// RewriteAt returns the tools/call that a call of fulfil_request stands for, at an
// endpoint with these names of tools. It returns nil for any other call.
func (s *Service) RewriteAt(ctx context.Context, c *enforce.Call, names enforce.ToolNames) (*wire.Message, error) {
	if c.Message.Method != wire.MethodToolsCall || c.Params.Name != ToolFulfil {
		return nil, nil
	}
	if own, err := s.isOwnTool(ctx, c); !own || err != nil {
		return nil, err
	}
	m, err := (&query{Service: s, call: c, names: names}).fulfilment(ctx)
	return m, forModel(err)
}

// fulfilment returns the tools/call by which the caller fulfils a request.
func (q *query) fulfilment(ctx context.Context) (*wire.Message, error) {
	var asked struct {
		RequestID string `json:"requestId"`
	}
	if err := q.read(q.call.Params.Arguments, &asked); err != nil {
		return nil, err
	}
	if asked.RequestID == "" {
		return nil, invalid("/requestId is required: the requestId of a request")
	}
	r, err := q.cfg.Requests.Request(q.call.Caller.Tenant, asked.RequestID)
	if err != nil {
		return nil, err
	}
	if r == nil || !q.serves(r.Server) {
		return nil, enforce.UnknownRequest()
	}
	permitted, err := q.cfg.MayFulfil(ctx, q.call, []*enforce.Request{r})
	if err != nil {
		return nil, err
	}
	if !permitted[0] {
		return nil, enforce.UnknownRequest()
	}
	f := &wire.Fulfilment{OnBehalfOf: r.Requester.Type + ":" + r.Requester.ID, RequestID: r.ID}
	m, err := q.call.Message.WithFulfilment(q.toolName(r), r.Arguments, f)
	if err != nil {
		return nil, fmt.Errorf("fulfil: %w", err)
	}
	return m, nil
}

// fulfils reports whether policies let the caller fulfil requests at some of these
// servers. They are asked about one of an agent for a tool that does not exist. Where
// they cannot be asked, it is not so.
func (s *Service) fulfils(ctx context.Context, c *enforce.Call, servers []string) bool {
	if s.cfg.MayFulfil == nil {
		return false
	}
	var all []*enforce.Request
	for _, server := range servers {
		all = append(all, &enforce.Request{ID: "*", Tenant: c.Caller.Tenant, Requester: authzen.Subject{Type: "agent", ID: "*"}, Server: server, Tool: "*"})
	}
	permitted, err := s.cfg.MayFulfil(ctx, c, all)
	return err == nil && slices.Contains(permitted, true)
}
