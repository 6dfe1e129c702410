package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/audit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/calllimit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// callLimits applies the limits of the configuration to tool calls.
type callLimits struct{ *calllimit.Limiter }

// newCallLimits counts the calls that the trail has of the longest period: a
// restart does not lift a limit.
func newCallLimits(ctx context.Context, limits []calllimit.Limit, trail *audit.Trail) (*callLimits, error) {
	l := &callLimits{calllimit.New(limits, nil)}
	if l.Longest() == 0 {
		return l, nil
	}
	for past, err := range trail.Forwarded(ctx, time.Now().Add(-l.Longest())) {
		if err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
		if past.Method == wire.MethodToolsCall {
			l.Count(calllimit.Call{Server: past.Server, Tool: past.Tool, Caller: calllimit.Caller{Tenant: past.Tenant, Type: past.Subject.Type, ID: past.Subject.ID}}, past.Time)
		}
	}
	return l, nil
}

// Take implements [enforce.Limits].
func (l *callLimits) Take(c *enforce.Call) (release func(), err error) {
	if c.Message.Method != wire.MethodToolsCall {
		return func() {}, nil
	}
	release, err = l.Limiter.Take(limitedCall(c))
	var exceeded *calllimit.ExceededError
	if errors.As(err, &exceeded) {
		return nil, enforce.TooOften(exceeded.Error(), exceeded.After)
	}
	return release, err
}

// countLate counts a call that people have approved and that the gateway makes
// itself.
func (l *callLimits) countLate(c *enforce.Call) {
	if c.Message.Method == wire.MethodToolsCall {
		l.Count(limitedCall(c), time.Now())
	}
}

func limitedCall(c *enforce.Call) calllimit.Call {
	subject := c.Caller.Subject
	return calllimit.Call{Server: c.Server, Tool: c.Params.Name, Caller: calllimit.Caller{Tenant: c.Caller.Tenant, Type: subject.Type, ID: subject.ID}}
}

const maxLimitPeriod = 31 * 24 * time.Hour

// checkLimits reports what is wrong with the limits of calls.
func (c *Config) checkLimits(f *faults) {
	for i, limit := range c.Limits {
		at := "limits." + strconv.Itoa(i)
		if limit.Calls < 1 || limit.Calls > calllimit.MaxCalls {
			f.fault(at+".calls", "must be a whole number from 1 to %d, not %d", calllimit.MaxCalls, limit.Calls)
		}
		switch age := c.Trail.RetentionAge; {
		case limit.Per < time.Second || limit.Per > maxLimitPeriod:
			f.fault(at+".per", "must be from 1s to 31d, not %s", limit.Per)
		case age != 0 && limit.Per > age:
			f.fault(at+".per", "must be at most trail.retention_age, because the gateway counts the calls in the trail after a restart")
		}
		for n, name := range limit.Servers {
			if names := c.ServerNames(); !slices.Contains(names, name) {
				f.fault(at+".servers."+strconv.Itoa(n), "there is no server %q; %s", name, cmp.Or(yamldoc.DidYouMean(name, names), "servers lists them"))
			}
		}
		for n, pattern := range limit.Tools {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				f.fault(at+".tools."+strconv.Itoa(n), "must be the name of a tool or a pattern, such as delete_*, not %q", pattern)
			}
		}
	}
}
