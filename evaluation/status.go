package evaluation

import (
	"time"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A Status describes the active policy store and whether it is up to date.
type Status struct {
	Revision string    `json:"revision,omitzero"` // in force; "" before the first
	Since    time.Time `json:"since,omitzero"`
	Tenants  []string  `json:"tenants,omitempty"`
	Policies int       `json:"policies"`
	Entities int       `json:"entities"`
	Stale    bool      `json:"stale"`              // the last attempt failed
	Problem  string    `json:"problem,omitzero"`   // why it failed
	Attempt  time.Time `json:"attempted,omitzero"` // the last one
	TookUS   int64     `json:"took_us,omitzero"`   // microseconds

	// Faults lists what Problem says, if it is about places in the files. Callers must not modify it.
	Faults faults.List `json:"-"`

	// InPart has the problems by tenant if they keep only these tenants' changes from being active. It is
	// nil if Problem concerns the whole store. Callers must not modify it.
	InPart *snapshot.PartError `json:"-"`
}
