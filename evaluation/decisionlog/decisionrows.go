package decisionlog

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// A Decided is one decision of an entry, with what was asked as far as it is
// known. An entry that is no decision is one, too, without these; one of kind
// request or approval is one for each item that it is about.
type DecisionRow struct {
	Record
	ID       string // the Decision-ID, with .n for item n of several
	Subject  subject
	Action   string
	Resource subject
	Result   *Result // nil where nothing was decided
	Approval Approval
}

// ReadDecisions reads a line of the log: one decision, or one for each item of
// a batch that was decided, or of a request for approval.
func ReadDecisions(line []byte) ([]DecisionRow, error) {
	var record Record
	if err := json.Unmarshal(line, &record); err != nil {
		return nil, fmt.Errorf("read entry: %w", err)
	}
	if record.Kind == KindRequest || record.Kind == KindApproval {
		return transitions(record), nil
	}
	var asked requestParts
	_ = json.Unmarshal(record.Request, &asked) // what has another form asks nothing of this kind
	if len(record.Evaluations) == 0 {
		return []DecisionRow{asked.decided(record, record.ID, record.Result)}, nil
	}
	all := make([]DecisionRow, len(record.Evaluations))
	for i := range record.Evaluations {
		all[i] = asked.item(i).decided(record, fmt.Sprintf("%s.%d", record.ID, i), &record.Evaluations[i])
	}
	return all, nil
}

// requestParts is what of a request an export names.
type requestParts struct {
	Subject *subject `json:"subject"`
	Action  *struct {
		Name string `json:"name"`
	} `json:"action"`
	Resource *subject       `json:"resource"`
	Items    []requestParts `json:"evaluations"`
}

// item returns what item i of a batch asks, with the defaults of the batch.
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

// A subject is the subject of a request, or its resource.
type subject struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// String returns type::id, or "" for nobody.
func (s subject) String() string {
	if s == (subject{}) {
		return ""
	}
	return s.Type + "::" + s.ID
}
