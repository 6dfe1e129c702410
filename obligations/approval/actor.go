package approval

import (
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// memberAct is the subject property that names the actors.
const memberAct = "act"

// actorsOf returns the actors of a subject, the nearest first.
func actorsOf(s authzen.Subject) ([]Actor, error) {
	properties, err := jsonobject.Parse(s.Properties)
	if err != nil {
		return nil, authzen.Invalid("/subject/properties", "must be an object")
	}
	return authzen.Delegates("/subject/properties/act", properties[memberAct])
}

// submittedActors returns the actors of a submission. The profile lets a submission name the actor
// in the client instead of the subject, but not omit it.
func submittedActors(sub *authzen.Submission) ([]Actor, error) {
	client, err := jsonobject.Parse(sub.Client)
	if err != nil {
		return nil, authzen.Invalid("/client", "must be an object")
	}
	if actor := client["actor"]; actor != nil {
		return authzen.Delegates("/client/actor", actor)
	}
	return actorsOf(sub.Subject)
}
