package approval

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// memberAct is the property of a subject that says who acts for it.
const memberAct = "act"

// maxActors bounds a chain of actors.
const maxActors = 8

// actorsOf returns who acts for a subject, nearest first.
func actorsOf(s authzen.Subject) ([]Actor, error) {
	properties, err := object(s.Properties)
	if err != nil {
		return nil, authzen.Invalid("/subject/properties", "must be an object")
	}
	return chain("/subject/properties/act", properties[memberAct])
}

// submittedActors returns who acts according to a submission: the profile lets
// the actor move from the subject to the client, and never vanish.
func submittedActors(sub *authzen.Submission) ([]Actor, error) {
	client, err := object(sub.Client)
	if err != nil {
		return nil, authzen.Invalid("/client", "must be an object")
	}
	if actor := client["actor"]; actor != nil {
		return chain("/client/actor", actor)
	}
	return actorsOf(sub.Subject)
}

// chain reads actors that act for each other. They are named sub and iss, or
// id and issuer.
func chain(path string, raw jsontext.Value) ([]Actor, error) {
	var actors []Actor
	for raw != nil && raw.Kind() != 'n' {
		var one struct {
			Subject string         `json:"sub"`
			ID      string         `json:"id"`
			Issuer  string         `json:"iss"`
			Issued  string         `json:"issuer"`
			Act     jsontext.Value `json:"act"`
		}
		if err := json.Unmarshal(raw, &one); err != nil || one.Subject+one.ID == "" {
			return nil, authzen.Invalid(path, "must be an object with the id of an actor")
		}
		if len(actors) == maxActors {
			return nil, authzen.Invalid(path, "has more than %d actors, each acting for the next", maxActors)
		}
		actors = append(actors, Actor{Issuer: one.Issuer + one.Issued, ID: one.Subject + one.ID})
		raw = one.Act
	}
	return actors, nil
}

// involves reports whether an approver is who asked, or who acted. Whoever has
// that id is, whatever the type: types have aliases.
func (r *Request) involves(approver authzen.Subject) bool {
	return approver.ID == r.Subject.ID || r.Caller != "" && approver.ID == r.Caller ||
		slices.ContainsFunc(r.Actors, func(a Actor) bool { return a.ID == approver.ID })
}
