package snapshot

import (
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Environment holds the inputs of a decision other than snapshot and request.
type Environment struct {
	Time     time.Time                 // the time of the decision
	Approval *authzen.VerifiedApproval // the active approval for the request; nil for none
}
