package decisionlog

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Approval is the approval part of a DecisionRow. For an entry of kind request or approval it
// describes the event. For an evaluation it describes the approval that was used.
type Approval struct {
	Event     string     `json:"event,omitzero"` // "" for an evaluation; forwarded, refused or the outcome for a gateway's call
	Task      string     `json:"task,omitzero"`
	Status    string     `json:"status,omitzero"`   // of the task, after the event
	ID        string     `json:"approval,omitzero"` // "" before an approval exists
	Template  string     `json:"template,omitzero"`
	Approvers []string   `json:"approvers,omitempty"` // as type::id
	Channel   string     `json:"channel,omitzero"`
	Comment   string     `json:"comment,omitzero"`
	Reason    string     `json:"reason,omitzero"` // reason of the revocation, or of the refusal of a call
	Until     *time.Time `json:"approved_until,omitzero"`
	UsedBy    string     `json:"used_by,omitzero"` // Decision-ID of the evaluation that used the approval
}

// A transition is the request of an entry of kind request or approval. Package approval records it.
type transition struct {
	Approval
	Approver *subject        `json:"approver"`
	Subject  *subject        `json:"subject"`
	Items    []transitedItem `json:"items"`
}

type transitedItem struct {
	ID       string    `json:"approval"`
	Template string    `json:"template"`
	Until    time.Time `json:"approved_until"`
	requestParts
}

// transitions returns the rows of an entry of kind request or approval, one for each affected item.
func transitions(record Record) []DecisionRow {
	var t transition
	if err := json.Unmarshal(record.Request, &t); err != nil {
		return []DecisionRow{{Record: record, ID: record.ID}}
	}
	if t.Approver != nil {
		t.Approvers = []string{t.Approver.String()}
	}
	if len(t.Items) == 0 {
		return []DecisionRow{requestParts{Subject: t.Subject}.transited(record, t.Approval)}
	}
	all := make([]DecisionRow, len(t.Items))
	for i, item := range t.Items {
		approval := t.Approval
		approval.ID, approval.Template = item.ID, item.Template
		if !item.Until.IsZero() {
			approval.Until = &item.Until
		}
		item.Subject = t.Subject
		all[i] = item.transited(record, approval)
		if len(all) > 1 {
			all[i].ID = fmt.Sprintf("%s.%d", record.ID, i)
		}
	}
	return all
}

// capabilityRow is the row of an entry of kind capability. Package capability records it.
func capabilityRow(record Record) DecisionRow {
	var t struct {
		Event       string    `json:"event"`
		Capability  string    `json:"capability"`
		Status      string    `json:"status"`
		Holder      subject   `json:"holder"`
		Template    string    `json:"template"`
		Task        string    `json:"task"`
		Reason      string    `json:"reason"`
		Approvers   []subject `json:"approvers"`
		By          *subject  `json:"by"`
		Constraints struct {
			Until *time.Time `json:"validUntil"`
		} `json:"constraints"`
	}
	_ = json.Unmarshal(record.Request, &t) // an entry of another form has an empty row
	d := DecisionRow{Record: record, ID: record.ID, Subject: t.Holder, Capability: t.Capability}
	if t.Capability != "" {
		d.Resource = subject{string(KindCapability), t.Capability}
	}
	d.Approval = Approval{Event: t.Event, Task: t.Task, Status: t.Status, Template: t.Template, Reason: t.Reason, Until: t.Constraints.Until}
	if t.By != nil {
		t.Approvers = []subject{*t.By}
	}
	for _, by := range t.Approvers {
		d.Approval.Approvers = append(d.Approval.Approvers, by.String())
	}
	return d
}

// gatewayRow is the row of an entry about a call through a gateway.
func gatewayRow(record Record) DecisionRow {
	var call struct {
		Approval
		requestParts
	}
	_ = json.Unmarshal(record.Request, &call) // an entry of another form has an empty row
	return call.transited(record, call.Approval)
}

func (a requestParts) transited(record Record, approval Approval) DecisionRow {
	d := a.decided(record, record.ID, nil)
	d.Approval = approval
	return d
}

// approvalOf describes the approval that an evaluation used.
func approvalOf(used *authzen.VerifiedApproval) Approval {
	if used == nil {
		return Approval{}
	}
	a := Approval{ID: used.ID, Task: used.Task, Template: used.Template, Channel: used.Channel, Until: &used.Until}
	for _, by := range used.Approvers {
		a.Approvers = append(a.Approvers, subject{by.Type, by.ID}.String())
	}
	return a
}
