package proxy

import (
	"context"
	"slices"
	"sync"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// underWay are the calls that the server has and has not answered, by conversation. A
// message of the server does not say in the course of which call it comes.
type underWay struct {
	mu    sync.Mutex
	calls map[string][]*enforce.Call
}

func newUnderWay() *underWay { return &underWay{calls: make(map[string][]*enforce.Call)} }

// begin adds a call, and returns what ends it as finish does.
func (u *underWay) begin(conversation string, c *enforce.Call, finish finishCall) finishCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls[conversation] = append(u.calls[conversation], c)
	return func(ctx context.Context, m *wire.Message) *wire.Message {
		out := finish(ctx, m)
		u.end(conversation, c)
		return out
	}
}

func (u *underWay) end(conversation string, c *enforce.Call) {
	u.mu.Lock()
	defer u.mu.Unlock()
	left := slices.DeleteFunc(u.calls[conversation], func(other *enforce.Call) bool { return other == c })
	if u.calls[conversation] = left; len(left) == 0 {
		delete(u.calls, conversation)
	}
}

// only returns the call of a conversation if it is the only one, or nil.
func (u *underWay) only(conversation string) *enforce.Call {
	if calls := u.of(conversation, func(*enforce.Call) bool { return true }); len(calls) == 1 {
		return calls[0]
	}
	return nil
}

// withObligations returns the calls of a conversation with obligations on results.
func (u *underWay) withObligations(conversation string) []*enforce.Call {
	return u.of(conversation, func(c *enforce.Call) bool { return !c.Results.IsZero() })
}

func (u *underWay) of(conversation string, is func(*enforce.Call) bool) (found []*enforce.Call) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.calls[conversation] {
		if is(c) {
			found = append(found, c)
		}
	}
	return found
}
