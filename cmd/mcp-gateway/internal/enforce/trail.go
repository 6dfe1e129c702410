package enforce

// An Entry is what is kept of a call.
type Entry struct {
	Call      *Call
	Decisions []string // of the PDP's log
	Digest    string   // of the call
	Task      string   // of the approval that is asked for; of several, with a space between
	Approval  string   // by which it is carried out, or several
}

// How a call that was forwarded ended.
const (
	Succeeded = "succeeded" // the server answered with a result
	Failed    = "failed"    // the server answered with an error
	Unknown   = "unknown"   // no answer came: the call may have had its effect
)

// A Trail keeps what becomes of calls.
type Trail interface {
	// Begin keeps that a call will be forwarded, under an id. Only when it has
	// returned may the call be. Ended keeps how it ended.
	Begin(*Entry) (id string, ended func(how string), err error)
	// EndLate keeps how the call of an id ended, which may be one that another
	// process forwarded. It keeps nothing if the end is known.
	EndLate(id string, call *Call, how string)
	// Refuse keeps that a call was not forwarded, and why.
	Refuse(e *Entry, reason string)
}

// NopTrail is a Trail that keeps nothing.
type NopTrail struct{}

// Begin keeps nothing.
func (NopTrail) Begin(*Entry) (string, func(string), error) { return "", func(string) {}, nil }

// EndLate keeps nothing.
func (NopTrail) EndLate(string, *Call, string) {}

// Refuse keeps nothing.
func (NopTrail) Refuse(*Entry, string) {}
