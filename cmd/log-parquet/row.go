package main

import (
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A row is a decision. The columns are those of the table in CSV, with
// types: what is not there is null, and a list is a list.
type row struct {
	Index          int64         `parquet:"index,delta"`
	ID             string        `parquet:"id"`
	Time           time.Time     `parquet:"time,timestamp(nanosecond)"`
	Tenant         *string       `parquet:"tenant,dict"`
	Kind           string        `parquet:"kind,dict"`
	SubjectType    *string       `parquet:"subject_type,dict"`
	SubjectID      *string       `parquet:"subject_id"`
	Action         *string       `parquet:"action,dict"`
	ResourceType   *string       `parquet:"resource_type,dict"`
	ResourceID     *string       `parquet:"resource_id"`
	Decision       *bool         `parquet:"decision"`
	Policies       []string      `parquet:"policies,list"`
	Errors         []policyError `parquet:"errors,list"`
	Obligations    []string      `parquet:"obligations,list"`
	Revision       *string       `parquet:"revision,dict"`
	Caller         *string       `parquet:"caller,dict"`
	RequestID      *string       `parquet:"request_id"`
	TraceID        *string       `parquet:"trace_id"`
	LatencyUS      int64         `parquet:"latency_us"`
	ShadowDecision *bool         `parquet:"shadow_decision"`
	ShadowPolicies []string      `parquet:"shadow_policies,list"`
	ShadowErrors   []policyError `parquet:"shadow_errors,list"`
	ShadowRevision *string       `parquet:"shadow_revision,dict"`
	Event          *string       `parquet:"event,dict"`
	Task           *string       `parquet:"task"`
	TaskStatus     *string       `parquet:"task_status,dict"`
	Approval       *string       `parquet:"approval"`
	Template       *string       `parquet:"template,dict"`
	Approvers      []string      `parquet:"approvers,list"`
	Channel        *string       `parquet:"channel,dict"`
	Comment        *string       `parquet:"comment"`
	Reason         *string       `parquet:"reason"`
	ApprovedUntil  *time.Time    `parquet:"approved_until,timestamp(nanosecond)"`
	UsedBy         *string       `parquet:"used_by"`
	Capability     *string       `parquet:"capability"`
}

type policyError struct {
	Policy  *string `parquet:"policy,dict"`
	Message string  `parquet:"message"`
}

func rowOf(d decisionlog.DecisionRow) row {
	r := row{
		Index: d.Index, ID: d.ID, Time: d.Time, Tenant: orNull(d.Tenant), Kind: string(d.Kind),
		SubjectType: orNull(d.Subject.Type), SubjectID: orNull(d.Subject.ID), Action: orNull(d.Action),
		ResourceType: orNull(d.Resource.Type), ResourceID: orNull(d.Resource.ID),
		Revision: orNull(d.Revision), Caller: orNull(d.Caller), RequestID: orNull(d.RequestID), TraceID: orNull(d.TraceID),
		LatencyUS: d.LatencyMicros,
	}
	a := d.Approval
	r.Event, r.Task, r.TaskStatus, r.Approval, r.Template = orNull(a.Event), orNull(a.Task), orNull(a.Status), orNull(a.ID), orNull(a.Template)
	r.Approvers, r.Channel, r.Comment, r.Reason = a.Approvers, orNull(a.Channel), orNull(a.Comment), orNull(a.Reason)
	r.ApprovedUntil, r.UsedBy, r.Capability = a.Until, orNull(a.UsedBy), orNull(d.Capability)
	if d.Result == nil {
		return r
	}
	r.Decision, r.Policies, r.Errors = &d.Result.Decision, d.Result.Policies, errorsOf(d.Result)
	for _, o := range d.Result.Obligations {
		r.Obligations = append(r.Obligations, string(o.Type))
	}
	if shadow := d.Result.Shadow; shadow != nil {
		r.ShadowDecision, r.ShadowPolicies, r.ShadowErrors = &shadow.Decision, shadow.Policies, errorsOf(&shadow.Result)
		r.ShadowRevision = &shadow.Revision
	}
	return r
}

func errorsOf(r *decisionlog.Result) (all []policyError) {
	for _, e := range r.Errors {
		all = append(all, policyError{orNull(e.Policy), e.Message})
	}
	return all
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
