package approval

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// repetitionWindow is how long after a use the same request counts as its
// repetition. It covers the retries of PEPs and of proxies.
const repetitionWindow = time.Minute

// A Use is a permit that consumed an approval.
type Use struct {
	RequestID  string    `json:"request_id,omitzero"` // from the PEP; "" for none
	Capability string    `json:"capability,omitzero"` // that the permit completes; "" for none
	Question   []byte    `json:"question,omitzero"`   // digest of the evaluation request; nil matches no repetition
	Time       time.Time `json:"time,omitzero"`
}

// UnmarshalJSONFrom reads a use. A bare request id, as versions without digests
// stored it, counts as a use and matches no repetition.
func (u *Use) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '"' {
		return json.UnmarshalDecode(dec, &u.RequestID)
	}
	type plain Use
	return json.UnmarshalDecode(dec, (*plain)(u))
}

// useOf returns the use of an approval for a request.
func useOf(v *authzen.Reevaluation) Use {
	return Use{RequestID: v.RequestID, Capability: v.Capability, Question: question(v), Time: v.Time.UTC().Truncate(time.Second)}
}

// repeats reports whether u repeats an earlier use: the same question with the same
// request id within repetitionWindow, or for the same capability at any time. A PEP
// chooses request ids, and only the service names a capability. An id with
// replacement characters matches nothing, because it may stand for any other
// invalid id.
func (u Use) repeats(earlier Use) bool {
	if u.Capability != "" || earlier.Capability != "" {
		return u.Capability == earlier.Capability && u.Question != nil && slices.Equal(u.Question, earlier.Question)
	}
	return u.RequestID != "" && !strings.ContainsRune(u.RequestID, '\uFFFD') && u.RequestID == earlier.RequestID &&
		u.Question != nil && slices.Equal(u.Question, earlier.Question) && u.Time.Sub(earlier.Time).Abs() < repetitionWindow
}

// question returns a digest of the evaluation request without the context members
// that are never bound. It returns nil if the request cannot be parsed.
func question(v *authzen.Reevaluation) []byte {
	context, err := jsonobject.Parse(v.Request.Context)
	if err != nil {
		return nil
	}
	maps.DeleteFunc(context, func(name string, _ jsontext.Value) bool { return slices.Contains(authzen.UnboundContext, name) })
	text, err := json.Marshal(struct {
		Tenant   string                    `json:"tenant"`
		Caller   string                    `json:"caller"`
		Item     string                    `json:"item"`
		Subject  authzen.Subject           `json:"subject"`
		Action   authzen.Action            `json:"action"`
		Resource authzen.Resource          `json:"resource"`
		Context  map[string]jsontext.Value `json:"context"`
	}{v.Tenant, v.Caller, v.Item, v.Request.Subject, v.Request.Action, v.Request.Resource, context})
	if err == nil {
		text, err = jsonobject.Canonical(text)
	}
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// left returns the remaining number of uses. They are not counted if uses is 0. A
// repetition consumes no use.
func (a *Approval) left(uses int, u Use) (left int, counted bool) {
	left = max(uses-len(a.Uses), 0)
	if a.repeated(u) {
		left++
	}
	return left, uses > 0
}

func (a *Approval) repeated(u Use) bool { return slices.ContainsFunc(a.Uses, u.repeats) }
