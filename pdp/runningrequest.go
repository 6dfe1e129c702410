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

// A runningRequest holds the resources of one running request: a slot, memory,
// and a slot of its class. The zero value holds none.
type runningRequest struct {
	limits      *limiter
	reservation admission.Reservation
	queue       *admission.FairQueue // nil for none
}

// release frees all resources. It runs before the answer is written, so that a
// client that reads slowly holds no slot.
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
	// lightBytes is the largest body whose decision takes little memory. A larger
	// body can take fifty times its size.
	lightBytes = 32 << 10
	// heavyMemory is the part of the memory budget that allows one concurrent heavy
	// request. A larger budget allows more of them.
	heavyMemory = 32 << 20
)

// acquire waits for the slots of a request and decodes its body into v. A large
// body waits before it is decoded. On an error the request holds no slot.
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

// switchQueue releases the slot, waits for a slot of the class, and then for
// another slot. A request that waits for its class therefore blocks no other.
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

// queueFor returns the queue of a request's class, or nil. Few requests that need
// much memory or processor time run at once.
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

// maxHeavy returns how many heavy requests run at once. The memory budget limits
// it, and the number of processors, because busy processors do not poll the
// network.
func maxHeavy(memory int64, inFlight int) int {
	return min(int(max(1, memory/heavyMemory)), max(2, runtime.NumCPU()), inFlight)
}

// scan waits until a search or a large batch may use a processor. The other
// requests have the remaining processors. The tenants that search are served
// round-robin.
func (l *limiter) scan(ctx context.Context, tenant string) (done func(), err error) {
	if !l.scans.Acquire(ctx, tenant) {
		return nil, errOverload
	}
	return l.scans.Release, nil
}
