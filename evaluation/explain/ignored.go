package explain

import (
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// ignored lists what the request says without effect.
func (e *explainer) ignored() {
	if e.query.Denied != "" {
		return
	}
	s, r := e.snapshot, e.query.Request
	e.ignoredProperties("principal", r.Principal, e.request.Subject.Properties, s.Settings.Parents)
	e.ignoredProperties("resource", r.Resource, e.request.Resource.Properties, nil)
	e.ignoredClaims()
}

// ignoredProperties lists attributes whose stored values differ, and parents of a type of which some
// parents are stored.
func (e *explainer) ignoredProperties(variable string, uid cedar.EntityUID, raw jsontext.Value, parents map[string]string) {
	if raw == nil {
		return
	}
	said, err := e.snapshot.Properties("", uid, raw, parents)
	if err != nil { // contradicts the decision, which read the properties
		return
	}
	got, _ := e.query.Entity(uid)
	for _, name := range slices.Sorted(maps.Keys(said.Attributes)) {
		if counts, ok := got.Attributes.Get(name); ok && !counts.Equal(said.Attributes[name]) {
			e.ignore(variable+"."+string(name), cedarText(said.Attributes[name]), cedarText(counts))
		}
	}
	n := snapshot.ResolvedEntity{UID: uid, Ancestors: got.Ancestors}
	for _, parent := range slices.SortedFunc(slices.Values(said.Parents), snapshot.CompareUID) {
		if !n.In(parent) {
			e.ignore(variable, "in "+parent.String(), "in "+listed(n.Groups()))
		}
	}
}

// ignoredClaims adds the approval and the capability that the request claims and that are not active.
func (e *explainer) ignoredClaims() {
	var sent map[string]jsontext.Value
	if json.Unmarshal(e.request.Context, &sent) != nil {
		return
	}
	for _, name := range []string{snapshot.ContextApproval, snapshot.ContextCapability} {
		claim := sent[name]
		if _, active := e.query.Request.Context.Get(cedar.String(name)); !active && claim != nil && claim.Compact() == nil {
			e.ignore("context."+name, string(claim), absent)
		}
	}
}

func (e *explainer) ignore(path, sent, counts string) {
	e.out.Ignored = append(e.out.Ignored, Ignored{path, sent, counts})
}

func cedarText(v cedar.Value) string { return string(v.MarshalCedar()) }
