package approval

import (
	"cmp"

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
// id and issuer. One that is named both ways is refused: readers differ in which
// they take.
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
		if one.Subject != "" && one.ID != "" || one.Issuer != "" && one.Issued != "" {
			return nil, authzen.Invalid(path, "must not have sub beside id, or iss beside issuer")
		}
		if len(actors) == maxActors {
			return nil, authzen.Invalid(path, "has more than %d actors, each acting for the next", maxActors)
		}
		actors = append(actors, Actor{Issuer: cmp.Or(one.Issuer, one.Issued), ID: cmp.Or(one.Subject, one.ID)})
		raw = one.Act
	}
	return actors, nil
}
