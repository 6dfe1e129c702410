package pdp

import (
	"bytes"
	"context"
	"net/http"
	"runtime"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An admission lets one request be worked on. Its zero value is of a request that
// has nothing to give back.
type admission struct {
	limits *limiter
	share  share
	class  *turns // nil for none
}

// end ends the work. To write an answer is none: who reads it slowly keeps
// nobody's turn.
func (a *admission) end() {
	if a.limits == nil {
		return
	}
	a.limits.turns.give()
	a.leaveClass()
	a.share.shrink(a.share.bytes)
	a.limits = nil
}

// answer ends the work with an answer.
func (a *admission) answer(c echo.Context, decision string, v any) error {
	return withBuffer(func(body *bytes.Buffer) error {
		if err := encode(body, v); err != nil {
			return err
		}
		a.end()
		if large := int64(body.Cap()); large > keptBuffer {
			if err := a.share.grow(large); err != nil {
				return err
			}
			defer a.share.shrink(large)
		}
		c.Response().Header()[headerDecisionID] = []string{decision}
		return sendBody(c, http.StatusOK, echo.MIMEApplicationJSON, body.Bytes())
	})
}

const (
	// lightBytes are those of a body that takes little memory to decide on. A larger
	// one can take fifty times its size.
	lightBytes = 32 << 10
	// heavyMemory is how much of the memory for bodies stands for one heavy request
	// that is worked on: an operator who gives more has more of them at once.
	heavyMemory = 32 << 20
)

// enter waits for what a request needs to be worked on, and decodes its body into
// v. A large body waits before, for that takes long already. Without an error the
// request has its turns, else none.
func (a *admission) enter(ctx context.Context, body []byte, v any) error {
	if len(body) > lightBytes && !a.take(ctx, &a.limits.heavy) {
		return errOverload
	}
	if !a.limits.turns.take(ctx, a.share.who) {
		a.leaveClass()
		return errOverload
	}
	if err := authzen.Unmarshal(body, v); err != nil {
		a.limits.turns.give()
		a.leaveClass()
		return err
	}
	if class := a.limits.classOf(v); class != nil && a.class == nil {
		return a.change(ctx, class)
	}
	return nil
}

// take waits for a turn of a class.
func (a *admission) take(ctx context.Context, class *turns) bool {
	if !class.take(ctx, a.share.who) {
		return false
	}
	a.class = class
	return true
}

func (a *admission) leaveClass() {
	if a.class != nil {
		a.class.give()
		a.class = nil
	}
}

// change has a request that has a turn wait for one of its class, and then for
// another turn: who waits for its class keeps nobody else's turn.
func (a *admission) change(ctx context.Context, class *turns) error {
	a.limits.turns.give()
	if !a.take(ctx, class) {
		return errOverload
	}
	if !a.limits.turns.take(ctx, a.share.who) {
		a.leaveClass()
		return errOverload
	}
	return nil
}

// classOf returns the turns that a request waits for beside those of all; nil for
// none. What takes much memory, or a processor for long, is worked on with few
// others of its kind.
func (l *limiter) classOf(request any) *turns {
	switch r := request.(type) {
	case *authzen.SubjectSearchRequest, *authzen.ResourceSearchRequest, *authzen.ActionSearchRequest:
		return &l.searches
	case *authzen.EvaluationsRequest:
		if len(r.Evaluations) > evaluation.LightItems {
			return &l.heavy
		}
	}
	return nil
}

// heavyOnes is how many heavy requests are worked on at once: as many as there is
// memory for, and no more than there are processors. A processor that always has
// something to do does not look at the network.
func heavyOnes(memory int64, inFlight int) int {
	return min(int(max(1, memory/heavyMemory)), max(2, runtime.NumCPU()), inFlight)
}

// scan waits until a search, or a large batch, may use a processor. The others
// have the rest of them, and the tenants that search take turns.
func (l *limiter) scan(ctx context.Context, tenant string) (done func(), err error) {
	if !l.scans.take(ctx, tenant) {
		return nil, errOverload
	}
	return l.scans.give, nil
}
