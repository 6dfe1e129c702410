package proxy

import (
	"context"
	"errors"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A client is that of a call of the older era, on the stream that answers it.
type client struct {
	h *Handler
	c *call
}

// Notify sends a notification on the stream of the call.
func (k *client) Notify(_ context.Context, m *wire.Message) error {
	return k.c.reply.Event(&endpoint.Event{Kind: "message", Data: m.Encode()})
}

var errNoSession = errors.New("the client has no session to answer in")

// Ask sends a request on the stream of the call, and waits for the client to
// post the response.
func (k *client) Ask(ctx context.Context, method string, params any) (*wire.Message, error) {
	if k.c.session == nil {
		return nil, errNoSession
	}
	return k.h.requests.elicit(ctx, k.c.session.ID, method, params, func(m *wire.Message) error { return k.Notify(ctx, m) })
}
