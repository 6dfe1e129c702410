package pdp

import (
	"bytes"
	"context"
	"net/http"
	"runtime"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/pdp/admission"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An admission is what one running request holds: a slot, memory, and a slot of
// its class. The zero value holds nothing.
type runningRequest struct {
	limits      *limiter
	reservation admission.Reservation
	queue       *admission.FairQueue // nil for none
}

// release frees all of it. It happens before the answer is written: a client that
// reads slowly holds no slot.
func (a *runningRequest) release() {
	if a.limits == nil {
		return
	}
	a.limits.queue.Release()
	a.releaseQueue()
	a.reservation.Release(a.reservation.Bytes)
	a.limits = nil
}

// answer releases the admission and writes the answer.
func (a *runningRequest) answer(c echo.Context, decision string, v any) error {
	return withBuffer(func(body *bytes.Buffer) error {
		if err := encode(body, v); err != nil {
			return err
		}
		a.release()
		if large := int64(body.Cap()); large > admission.PooledBytes {
			if err := a.reservation.Reserve(large); err != nil {
				return err
			}
			defer a.reservation.Release(large)
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

// acquire waits for the slots that a request needs and decodes its body into v. A
// large body waits before it is decoded. With an error the request holds no slot.
func (a *runningRequest) acquire(ctx context.Context, body []byte, v any) error {
	if len(body) > lightBytes && !a.acquireFrom(ctx, &a.limits.heavy) {
		return errOverload
	}
	if !a.limits.queue.Acquire(ctx, a.reservation.Owner) {
		a.releaseQueue()
		return errOverload
	}
	if err := authzen.Unmarshal(body, v); err != nil {
		a.limits.queue.Release()
		a.releaseQueue()
		return err
	}
	if class := a.limits.queueFor(v); class != nil && a.queue == nil {
		return a.switchQueue(ctx, class)
	}
	return nil
}

// acquireFrom waits for a slot of a class.
func (a *runningRequest) acquireFrom(ctx context.Context, class *admission.FairQueue) bool {
	if !class.Acquire(ctx, a.reservation.Owner) {
		return false
	}
	a.queue = class
	return true
}

func (a *runningRequest) releaseQueue() {
	if a.queue != nil {
		a.queue.Release()
		a.queue = nil
	}
}

// switchQueue gives up the slot, waits for one of the class, and then for another
// slot: a request that waits for its class blocks no other.
func (a *runningRequest) switchQueue(ctx context.Context, class *admission.FairQueue) error {
	a.limits.queue.Release()
	if !a.acquireFrom(ctx, class) {
		return errOverload
	}
	if !a.limits.queue.Acquire(ctx, a.reservation.Owner) {
		a.releaseQueue()
		return errOverload
	}
	return nil
}

// queueFor returns the queue of a request's class, nil for none. Requests that need
// much memory or processor time run with few others of their class.
func (l *limiter) queueFor(request any) *admission.FairQueue {
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

// maxHeavy is how many heavy requests run at once: as many as the memory allows,
// and no more than there are processors, which would not poll the network.
func maxHeavy(memory int64, inFlight int) int {
	return min(int(max(1, memory/heavyMemory)), max(2, runtime.NumCPU()), inFlight)
}

// scan waits until a search, or a large batch, may use a processor. The others
// have the rest of them, and the tenants that search take turns.
func (l *limiter) scan(ctx context.Context, tenant string) (done func(), err error) {
	if !l.scans.Acquire(ctx, tenant) {
		return nil, errOverload
	}
	return l.scans.Release, nil
}
