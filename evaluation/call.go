package evaluation

import (
	"strconv"

	"github.com/google/uuid"
)

// A Call holds what the transport knows about a request other than its body.
type Call struct {
	ID        string // of the log entry, the Decision-ID; generated if empty
	Tenant    string
	Caller    string
	RequestID string
	TraceID   string
	Item      string // index in a batch, from 0; "" for a single request
	Minimal   bool   // a denial's offer has no binding token
	NoLabels  bool   // the caller must not send context.session.labels

	// Capability is the id of the capability that this call completes, or "". All completions of one
	// capability use an approval once.
	Capability string
}

// identified returns the call with an id for its log entry.
func (c Call) identified() Call {
	if c.ID == "" {
		c.ID = NewDecisionID()
	}
	return c
}

// NewDecisionID returns a new id for a log entry: a version 7 UUID, so that ids sort by time.
func NewDecisionID() string { return uuid.Must(uuid.NewV7()).String() }

// item returns the call for item n of a batch.
func (c Call) item(n int) Call {
	c.Item = strconv.Itoa(n)
	c.ID += "." + c.Item
	return c
}
