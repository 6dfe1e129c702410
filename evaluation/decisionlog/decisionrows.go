package decisionlog

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// A DecisionRow is one decision of an entry, with the known parts of its request. An entry without
// a decision has one row without Result. An entry of kind request or approval has one row for each
// affected item.
type DecisionRow struct {
	Record
	ID       string // Decision-ID, with .n for item n of a batch
	Subject  subject
	Action   string
	Resource subject
	Result   *Result // nil for a row without a decision
	Approval Approval
	// Capability is the id of the capability that covered the request, or that the entry is about.
	Capability string
}

// ReadDecisions returns the rows of a line of the log: one for a single decision, or one for each
// item of a batch or of an access request.
func ReadDecisions(line []byte) ([]DecisionRow, error) {
	var record Record
	if err := json.Unmarshal(line, &record); err != nil {
		return nil, fmt.Errorf("read entry: %w", err)
	}
	return record.Decisions(), nil
}

// Decisions returns the rows of an entry, as [ReadDecisions] returns those of its line.
func (r Record) Decisions() []DecisionRow {
	switch r.Kind {
	case KindRequest, KindApproval:
		return transitions(r)
	case KindCapability:
		return []DecisionRow{capabilityRow(r)}
	case KindGatewayCall, KindGatewayOutcome, KindGatewayRefused:
		return []DecisionRow{gatewayRow(r)}
	}
	var asked requestParts
	_ = json.Unmarshal(r.Request, &asked) // requests of another form have none of these members
	if len(r.Evaluations) == 0 {
		return []DecisionRow{asked.decided(r, r.ID, r.Result)}
	}
	all := make([]DecisionRow, len(r.Evaluations))
	for i := range r.Evaluations {
		all[i] = asked.item(i).decided(r, fmt.Sprintf("%s.%d", r.ID, i), &r.Evaluations[i])
	}
	return all
}

// requestParts are the members of a request that an export uses.
type requestParts struct {
	Subject *subject `json:"subject"`
	Action  *struct {
		Name string `json:"name"`
	} `json:"action"`
	Resource *subject       `json:"resource"`
	Items    []requestParts `json:"evaluations"`
}

// item returns item i of a batch, with the defaults of the batch.
func (a requestParts) item(i int) requestParts {
	if i >= len(a.Items) {
		return a
	}
	item := a.Items[i]
	if item.Subject == nil {
		item.Subject = a.Subject
	}
	if item.Action == nil {
		item.Action = a.Action
	}
	if item.Resource == nil {
		item.Resource = a.Resource
	}
	return item
}

func (a requestParts) decided(record Record, id string, result *Result) DecisionRow {
	d := DecisionRow{Record: record, ID: id, Result: result}
	if result != nil {
		d.Approval = approvalOf(result.Approval)
		if used := result.Capability; used != nil {
			d.Capability = used.ID
		}
	}
	if a.Subject != nil {
		d.Subject = *a.Subject
	}
	if a.Action != nil {
		d.Action = a.Action.Name
	}
	if a.Resource != nil {
		d.Resource = *a.Resource
	}
	return d
}

// A subject is the subject or the resource of a request.
type subject struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// String returns type::id, or "" for a missing subject.
func (s subject) String() string {
	if s == (subject{}) {
		return ""
	}
	return s.Type + "::" + s.ID
}
