package proxy

import (
	"context"
	"errors"
	"fmt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/lines"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// refuse answers a message of the client that cannot be read. Where it is a
// response, who waits for it gets an error in its place. Err is that of the line.
func (p *Pipe) refuse(fault *wire.Fault, line []byte, err error) {
	id, message := fault.ID, fault.Reason
	if err != nil || errors.Is(fault, wire.ErrDepth) {
		seen := lines.Glimpse(line, err)
		if seen.IsResponse() && seen.ID != nil {
			p.answerUnreadable(seen, fault.Reason)
			return
		}
		id, message = seen.ID, message+": the gateway has not forwarded it"
	}
	_ = p.toClient.Write(wire.Refuse(id, fault.Code, message, enforce.Data{Reason: enforce.ReasonInvalidMessage}))
}

// answerUnreadable tells who waits for a response of the client, the server or the
// gateway, that it cannot be read.
func (p *Pipe) answerUnreadable(seen wire.Glimpse, why string) {
	response := wire.Refuse(seen.ID, wire.CodeInternal, "the client answered, but "+why, nil)
	if isOurs(seen.ID) {
		p.requests.deliver(conversation, response)
		return
	}
	_ = p.toServer.Write(response)
}

// withhold answers a message of the server that cannot be read because of err:
// the client learns that its call was carried out, and the server that its
// request was not.
func (p *Pipe) withhold(ctx context.Context, seen wire.Glimpse, err error) {
	if seen.ID == nil {
		return
	}
	why := fmt.Sprintf("its answer nests deeper than %d levels", wire.MaxDepth)
	if errors.Is(err, lines.ErrSize) {
		why = fmt.Sprintf("its answer is larger than max_reply: %d bytes", p.cfg.MaxReply)
	}
	if !seen.IsResponse() {
		_ = p.toServer.Write(wire.Refuse(seen.ID, wire.CodeRequest, err.Error(), nil))
		return
	}
	ended, answer := withhold(seen.ID, seen, why)
	if p.requests.deliver(conversation, answer) {
		return
	}
	if finish := p.sent.take(conversation, seen.ID); finish != nil {
		finish(ctx, ended)
		_ = p.toClient.Write(answer)
	}
}
