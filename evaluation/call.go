package evaluation

import (
	"strconv"

	"github.com/google/uuid"
)

// A Call is what the edge knows of a request beside its body.
type Call struct {
	ID        string // of the log entry, the Decision-ID; made here when empty
	Tenant    string
	Caller    string
	RequestID string
	TraceID   string
	Item      string // of a batch, its number from 0; "" for a single request
	Minimal   bool   // a denial is offered without a binding token
}

// identified returns the call with the id of its log entry.
func (c Call) identified() Call {
	if c.ID == "" {
		c.ID = NewDecisionID()
	}
	return c
}

// NewDecisionID returns a new id for a log entry: a UUID of version 7, so that
// ids sort by time.
func NewDecisionID() string { return uuid.Must(uuid.NewV7()).String() }

// item is the call of item n of a batch.
func (c Call) item(n int) Call {
	c.Item = strconv.Itoa(n)
	c.ID += "." + c.Item
	return c
}
