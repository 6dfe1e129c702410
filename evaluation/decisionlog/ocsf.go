package decisionlog

import (
	"cmp"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// OCSF 1.5 classes and activities. A decision is about an API call. Policies do not tell whether
// the call creates or reads, so the activity is Other. docs/reference/decision-log.md has the
// mapping.
const (
	ocsfVersion = "1.5.0"

	apiActivity      = 6003
	entityManagement = 3004
	userAccess       = 3005

	activityUpdate = 3
	activityAssign = 1
	activityRevoke = 2
	activityOther  = 99
)

// An event is an OCSF event with the attributes that entries provide.
type event struct {
	ActivityID   int           `json:"activity_id"`
	ActivityName string        `json:"activity_name,omitzero"`
	CategoryUID  int           `json:"category_uid"`
	ClassUID     int           `json:"class_uid"`
	TypeUID      int           `json:"type_uid"`
	Time         int64         `json:"time"`    // milliseconds since 1970
	TimeDT       time.Time     `json:"time_dt"` // the same time in full precision, profile Date/Time
	SeverityID   int           `json:"severity_id"`
	StatusID     int           `json:"status_id"`
	StatusDetail string        `json:"status_detail,omitzero"`
	ActionID     int           `json:"action_id,omitzero"`
	Disposition  int           `json:"disposition_id,omitzero"`
	Metadata     ocsfMetadata  `json:"metadata"`
	Actor        *ocsfActor    `json:"actor,omitzero"`
	API          *ocsfAPI      `json:"api,omitzero"`
	SrcEndpoint  *ocsfNamed    `json:"src_endpoint,omitzero"`
	Resources    []ocsfNamed   `json:"resources,omitempty"`
	Policy       *ocsfNamed    `json:"policy,omitzero"`
	Entity       *ocsfNamed    `json:"entity,omitzero"`
	User         *ocsfNamed    `json:"user,omitzero"`
	Privileges   []string      `json:"privileges,omitempty"`
	Unmapped     *ocsfUnmapped `json:"unmapped,omitzero"`
}

type ocsfMetadata struct {
	Version        string      `json:"version"`
	Product        ocsfProduct `json:"product"`
	Profiles       []string    `json:"profiles,omitempty"`
	UID            string      `json:"uid"`
	CorrelationUID string      `json:"correlation_uid,omitzero"`
	Sequence       int64       `json:"sequence"`
	TenantUID      string      `json:"tenant_uid,omitzero"`
}

type ocsfProduct struct {
	Name       string `json:"name"`
	VendorName string `json:"vendor_name"`
}

type ocsfActor struct {
	User *ocsfNamed `json:"user,omitzero"`
	App  string     `json:"app_name,omitzero"`
}

type ocsfAPI struct {
	Operation string      `json:"operation"`
	Request   *ocsfNamed  `json:"request,omitzero"`
	Service   ocsfService `json:"service"`
}

type ocsfService struct {
	Name string `json:"name"`
}

// An ocsfNamed is a user, resource, endpoint, policy or entity.
type ocsfNamed struct {
	UID  string `json:"uid,omitzero"`
	Name string `json:"name,omitzero"`
	Type string `json:"type,omitzero"`
}

// ocsfUnmapped holds data that has no OCSF attribute.
type ocsfUnmapped struct {
	Kind        Kind           `json:"kind"`
	Policies    []string       `json:"policies,omitempty"`
	Errors      []PolicyError  `json:"errors,omitempty"`
	Obligations int            `json:"obligations,omitzero"`
	Revision    string         `json:"revision,omitzero"`
	LatencyUS   int64          `json:"latency_us,omitzero"`
	Shadow      *Shadow        `json:"shadow,omitzero"`
	Approval    *Approval      `json:"approval,omitzero"`
	Request     jsontext.Value `json:"request,omitzero"` // only without a decision
}

// writeEvents writes the events of a line.
func writeEvents(w io.Writer, line []byte) error {
	decisions, err := ReadDecisions(line)
	if err != nil {
		return err
	}
	for _, d := range decisions {
		text, err := json.Marshal(d.event())
		if err != nil {
			return err
		}
		if err := writeLine(w, text); err != nil {
			return err
		}
	}
	return nil
}

func (d DecisionRow) event() event {
	e := event{
		Time:       d.Time.UnixMilli(),
		TimeDT:     d.Time,
		SeverityID: 1, // informational
		Metadata: ocsfMetadata{
			Version:        ocsfVersion,
			Product:        ocsfProduct{"policy-service", "policy-service"},
			UID:            d.ID,
			CorrelationUID: cmp.Or(d.TraceID, d.RequestID),
			Sequence:       d.Index,
			TenantUID:      d.Tenant,
			Profiles:       []string{"datetime"},
		},
		Unmapped: &ocsfUnmapped{Kind: d.Kind, Revision: d.Revision, LatencyUS: d.LatencyMicros},
	}
	if d.Approval.ID != "" || d.Approval.Event != "" {
		e.Unmapped.Approval = &d.Approval
	}
	e.outcome(d.Result)
	switch d.Kind {
	case KindEvaluation, KindEvaluations, KindSearch:
		e.decision(d)
	case KindRequest, KindApproval, KindCapability:
		e.approval(d)
	case KindGatewayCall, KindGatewayOutcome, KindGatewayRefused:
		e.gatewayCall(d)
	default:
		e.change(d)
	}
	e.TypeUID = 100*e.ClassUID + e.ActivityID
	return e
}

// outcome sets the status of the event.
func (e *event) outcome(r *Result) {
	e.StatusID = 1 // success
	if r == nil {
		return
	}
	e.Unmapped.Policies, e.Unmapped.Errors, e.Unmapped.Obligations = r.Policies, r.Errors, len(r.Obligations)
	e.Unmapped.Shadow = r.Shadow
	if len(r.Errors) > 0 {
		e.SeverityID, e.StatusDetail = 3, r.Errors[0].Message // medium
	}
}

// decision makes the event one of class API Activity with profile Security Control.
func (e *event) decision(d DecisionRow) {
	e.CategoryUID, e.ClassUID, e.ActivityID, e.ActivityName = 6, apiActivity, activityOther, "Authorize"
	e.Metadata.Profiles = []string{"security_control", "datetime"}
	e.Actor = &ocsfActor{User: d.Subject.named(), App: d.Caller}
	e.API = &ocsfAPI{Operation: cmp.Or(d.Action, string(d.Kind)), Service: ocsfService{"policy-service"}}
	if d.RequestID != "" {
		e.API.Request = &ocsfNamed{UID: d.RequestID}
	}
	e.SrcEndpoint = &ocsfNamed{Name: cmp.Or(d.Caller, "unknown")}
	if d.Resource != (subject{}) {
		e.Resources = []ocsfNamed{*d.Resource.named()}
	}
	if d.Result == nil {
		return
	}
	e.ActionID, e.Disposition = 2, 2 // denied, blocked
	if d.Result.Decision {
		e.ActionID, e.Disposition = 1, 1 // both allowed
	}
	if policies := d.Result.Policies; len(policies) > 0 {
		e.Policy = &ocsfNamed{UID: policies[0], Name: policies[0]}
	}
}

// gatewayCall makes an event of the class API Activity: the call of a tool, which
// a gateway forwards or refuses.
func (e *event) gatewayCall(d DecisionRow) {
	e.decision(d)
	e.ActivityName, e.API.Service.Name = "Call", "mcp-gateway"
	e.ActionID, e.Disposition = 1, 1 // both allowed
	switch d.Approval.Event {
	case "refused":
		e.ActionID, e.Disposition, e.StatusDetail = 2, 2, d.Approval.Reason // denied, blocked
	case "failed":
		e.StatusID, e.StatusDetail = 2, d.Approval.Reason // failure
	case "unknown":
		e.StatusID, e.StatusDetail = 0, d.Approval.Reason // unknown
	}
}

// approval makes the event one of class User Access Management. The activity is "assign privileges"
// when the approval exists, and another for the votes before.
func (e *event) approval(d DecisionRow) {
	e.CategoryUID, e.ClassUID = 3, userAccess
	e.User = d.Subject.named()
	e.Privileges = []string{cmp.Or(d.Action, "unknown")}
	if d.Resource != (subject{}) {
		e.Resources = []ocsfNamed{*d.Resource.named()}
	}
	e.Unmapped.Request = d.Request
	switch happened := d.Approval.Event; {
	case happened == "approve" && d.Approval.ID != "":
		e.ActivityID, e.ActivityName = activityAssign, "Assign Privileges"
	case happened == "revoke" || happened == "supersede":
		e.ActivityID, e.ActivityName = activityRevoke, "Revoke Privileges"
	default:
		e.ActivityID, e.ActivityName = activityOther, cmp.Or(happened, string(d.Kind))
	}
}

// change makes the event one of class Entity Management, for an action on the policies or the log.
func (e *event) change(d DecisionRow) {
	e.CategoryUID, e.ClassUID, e.ActivityID, e.ActivityName = 3, entityManagement, activityUpdate, "Update"
	e.Entity = &ocsfNamed{Name: "decision log", Type: "log"}
	if d.Kind == KindReload {
		e.Entity = &ocsfNamed{UID: d.Revision, Name: "policy store", Type: "policy store"}
		if d.Result != nil && !d.Result.Decision {
			e.StatusID = 2 // failure
		}
	}
	e.Unmapped.Request = slices.Clone(d.Request)
}

// named returns the subject as OCSF object. OCSF requires a name.
func (s subject) named() *ocsfNamed {
	return &ocsfNamed{UID: s.ID, Name: cmp.Or(s.ID, "unknown"), Type: s.Type}
}
