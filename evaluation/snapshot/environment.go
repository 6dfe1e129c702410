package snapshot

import (
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Environment holds the inputs of a decision other than snapshot and request.
type Environment struct {
	Time     time.Time                 // the time of the decision
	Approval *authzen.VerifiedApproval // the active approval for the request; nil for none
	// Capability is the active capability that covers the request; nil for none.
	Capability *authzen.VerifiedCapability
	// CapabilityDenied is the reason why the capability that the request presents does not cover it. The
	// request is then denied, whatever policies permit. "" if it presents none, or a good one.
	CapabilityDenied authzen.CapabilityReason
}
