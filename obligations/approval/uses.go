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
)

// repetitionWindow is how long after a use the same request is a repetition of
// it: as long as a PEP, or what is between, tries again.
const repetitionWindow = time.Minute

// A Use is a permit that an approval was used for.
type Use struct {
	RequestID string    `json:"request_id,omitzero"` // the PEP's; "" for none
	Question  []byte    `json:"question,omitzero"`   // digest of what was asked; nil repeats nothing
	Time      time.Time `json:"time,omitzero"`
}

// UnmarshalJSONFrom reads a use. One that is no more than a request id counts
// as a use and repeats nothing: a file of before digests has such uses.
func (u *Use) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '"' {
		return json.UnmarshalDecode(dec, &u.RequestID)
	}
	type plain Use
	return json.UnmarshalDecode(dec, (*plain)(u))
}

// useOf is the use of an approval for a request.
func useOf(v *authzen.Reevaluation) Use {
	return Use{RequestID: v.RequestID, Question: question(v), Time: v.Time.UTC().Truncate(time.Second)}
}

// repeats reports whether u is a repetition of an earlier use: the same request
// id and the same question, soon after. An id whose bytes were no text may
// stand for any other such id, and repeats nothing.
func (u Use) repeats(earlier Use) bool {
	return u.RequestID != "" && !strings.ContainsRune(u.RequestID, '\uFFFD') && u.RequestID == earlier.RequestID &&
		u.Question != nil && slices.Equal(u.Question, earlier.Question) && u.Time.Sub(earlier.Time).Abs() < repetitionWindow
}

// question is a digest of all that was asked, but for the members of the
// context that never count. It is nil for what cannot be read.
func question(v *authzen.Reevaluation) []byte {
	context, err := object(v.Request.Context)
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
		text, err = canonical(text)
	}
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// left returns how often the approval may still be used, of so many uses; it
// is not counted for 0. A repetition is not another use.
func (a *Approval) left(uses int, u Use) (left int, counted bool) {
	left = max(uses-len(a.Uses), 0)
	if a.repeated(u) {
		left++
	}
	return left, uses > 0
}

func (a *Approval) repeated(u Use) bool { return slices.ContainsFunc(a.Uses, u.repeats) }
