package capability

import (
	"errors"
	"fmt"

	"github.com/policy-service/policy-service/obligations/recordfile"
)

var (
	// ErrUnknown means that there is no such capability, or not for this caller.
	ErrUnknown = errors.New("unknown capability")
	// ErrState means that the state of the capability does not allow the event.
	ErrState = errors.New("the capability is not in a state for that")
	// ErrRefreshed means that the capability to refresh has been revoked, or refreshed before.
	ErrRefreshed = fmt.Errorf("%w: the one that it refreshes has been revoked", ErrState)
	// ErrDuplicate means that the Idempotency-Key belongs to another request.
	ErrDuplicate = errors.New("the Idempotency-Key was used for another request")
	// ErrTooMany means that the holder or the tenant has too many capabilities.
	ErrTooMany = errors.New("too many capabilities")
	// ErrTooManyStored means that the stored capabilities exceed the quota. Those that ended in the
	// last day count.
	ErrTooManyStored = errors.New("too many capabilities are stored; one is deleted a day after it has ended, and a revoked one not before its time is over")
	// ErrTooManyProofs means that there is no room for another proof until earlier ones are too old to be
	// presented again.
	ErrTooManyProofs = errors.New("too many proofs of capabilities within four minutes")
	// ErrPage means that Query.After is not a position in a list.
	ErrPage = recordfile.ErrPage
)
