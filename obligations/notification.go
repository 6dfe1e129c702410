package obligations

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Members of a notification that differ between drafts. In the draft of July 2026 "to" is a string
// and decision_subject does not exist.
const (
	memberTo              = "to"
	memberDecisionSubject = "decision_subject"
)

// aboutSubject is the default of decision_subject.
var aboutSubject = jsontext.Value(`"{{subject.id}}"`)

// completeNotification converts a notification to the current form: "to" is a list, and
// decision_subject is set.
func completeNotification(members map[string]jsontext.Value) error {
	if to := members[memberTo]; to.Kind() == '"' {
		members[memberTo] = slices.Concat(jsontext.Value("["), to, jsontext.Value("]"))
	}
	switch about := members[memberDecisionSubject]; about.Kind() {
	case 0:
		members[memberDecisionSubject] = aboutSubject
	case '"', '{':
	default:
		return fmt.Errorf("%s must be a string or an object", memberDecisionSubject)
	}
	return nil
}

// errSeveral means that a notification has no form in the draft of July 2026.
var errSeveral = errors.New(`has several in "to", but the form with a string allows one`)

// NotifyOne converts the notifications of a policy to the draft of July 2026, for PEPs that support
// only that. It removes a default decision_subject.
func (t *Terms) NotifyOne() error {
	for i, o := range t.Obligations {
		if o.Type != authzen.ObligationNotification {
			continue
		}
		members, err := jsonobject.Parse(o.Properties)
		if err != nil {
			return err
		}
		var to []jsontext.Value
		if err := json.Unmarshal(members[memberTo], &to); err != nil {
			return err
		}
		if len(to) != 1 {
			return errSeveral
		}
		members[memberTo] = to[0]
		if string(members[memberDecisionSubject]) == string(aboutSubject) {
			members.Remove(memberDecisionSubject)
		}
		if t.Obligations[i].Properties, err = members.Encode(); err != nil {
			return err
		}
	}
	return nil
}
