package evaluation

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// errLabels says who may send labels.
const errLabels = "says what the caller of a gateway has read: the credential needs the scope label to send it"

// checkLabels refuses labels at session.labels of a request's context, unless the caller may send
// them. Policies believe labels, so only the gateway that gives them may say which there are. A
// session without labels is an ordinary member.
func (c Call) checkLabels(context jsontext.Value) error {
	if !c.NoLabels || !bytes.Contains(context, []byte("session")) && !bytes.Contains(context, []byte(`\u`)) {
		return nil
	}
	var sent struct {
		Session jsontext.Value `json:"session"`
	}
	var session struct {
		Labels jsontext.Value `json:"labels"`
	}
	if json.Unmarshal(context, &sent) != nil || json.Unmarshal(sent.Session, &session) != nil || session.Labels == nil {
		return nil
	}
	return authzen.Invalid("/context/session/labels", errLabels)
}
