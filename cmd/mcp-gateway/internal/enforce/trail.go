package enforce

// An Entry is the record of a call.
type Entry struct {
	Call      *Call
	Decisions []string // of the PDP's log
	Digest    string   // of the call
	Task      string   // access requests, separated by spaces
	Approval  string   // approvals that permit the call, separated by spaces
	// OnBehalfOf is the requester of the request that the call fulfils, TYPE::ID, and
	// Fulfils the request; "" for any other call.
	OnBehalfOf, Fulfils string
	// Observed is the decision on a call that is forwarded whatever it is; nil for a
	// call whose decision is enforced.
	Observed *Observation
}

// Outcomes of a forwarded call.
const (
	Succeeded = "succeeded" // the server answered with a result
	Failed    = "failed"    // the server answered with an error
	Unknown   = "unknown"   // no answer came: the call may have had its effect
)

// A Trail records calls and their outcomes.
type Trail interface {
	// Begin records that a call will be forwarded. The call may be forwarded only
	// after Begin has returned. Ended records the outcome.
	Begin(*Entry) (id string, ended func(how string), err error)
	// EndLate records the outcome of the call with an id of Begin, perhaps in another
	// process. It records nothing if the outcome is known.
	EndLate(id string, call *Call, how string)
	// Refuse records that a call was not forwarded, and the reason.
	Refuse(e *Entry, reason string)
}

// NopTrail is a Trail that records nothing.
type NopTrail struct{}

// Begin records nothing.
func (NopTrail) Begin(*Entry) (string, func(string), error) { return "", func(string) {}, nil }

// EndLate records nothing.
func (NopTrail) EndLate(string, *Call, string) {}

// Refuse records nothing.
func (NopTrail) Refuse(*Entry, string) {}
