package approval

import (
	"github.com/policy-service/policy-service/schemas/authzen"
)

// memberAct is the property of a subject that says who acts for it.
const memberAct = "act"

// actorsOf returns who acts for a subject, nearest first.
func actorsOf(s authzen.Subject) ([]Actor, error) {
	properties, err := object(s.Properties)
	if err != nil {
		return nil, authzen.Invalid("/subject/properties", "must be an object")
	}
	return authzen.Delegates("/subject/properties/act", properties[memberAct])
}

// submittedActors returns who acts according to a submission: the profile lets
// the actor move from the subject to the client, and never vanish.
func submittedActors(sub *authzen.Submission) ([]Actor, error) {
	client, err := object(sub.Client)
	if err != nil {
		return nil, authzen.Invalid("/client", "must be an object")
	}
	if actor := client["actor"]; actor != nil {
		return authzen.Delegates("/client/actor", actor)
	}
	return actorsOf(sub.Subject)
}
