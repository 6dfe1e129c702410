package approval

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Priorities of a request, from member priority of its requested_access.
const (
	PriorityHigh   = "high"
	PriorityNormal = "normal"
	PriorityLow    = "low"
)

var priorities = []string{PriorityHigh, PriorityNormal, PriorityLow} // the first one first in lists

// requestedPriority returns the priority that the requester asks for.
func requestedPriority(access jsontext.Value) (string, error) {
	var wanted struct {
		Priority any `json:"priority"`
	}
	if access == nil || json.Unmarshal(access, &wanted) != nil || wanted.Priority == nil {
		return PriorityNormal, nil // whatever is no object is refused elsewhere
	}
	name, _ := wanted.Priority.(string)
	if !slices.Contains(priorities, name) {
		return "", authzen.Invalid("/requested_access/priority", "must be low, normal or high")
	}
	return name, nil
}

// prioritize gives the request the highest priority of its items.
func (r *Request) prioritize(of string) {
	if r.Priority == "" || slices.Index(priorities, of) < slices.Index(priorities, r.Priority) {
		r.Priority = of
	}
}

// rank returns the place of the request among those of another escalation or priority.
func (r *Request) rank() byte {
	rank := byte(slices.Index(priorities, cmp.Or(r.Priority, PriorityNormal)))
	if !r.Escalated {
		rank += byte(len(priorities))
	}
	return rank
}
