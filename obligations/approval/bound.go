package approval

import (
	"bytes"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A bound is what of a context an approval is bound to.
type bound struct {
	Members []string       `json:"members,omitzero"` // that count, whether they are there or not
	Whole   bool           `json:"whole,omitzero"`   // every member counts but those of unbound
	Context jsontext.Value `json:"context"`          // those that were there
}

// unbound are the members of a context that never count: what is the
// protocol's, what only the service can say, and the time.
var unbound = []string{
	"access_request", "evaluation_id", "evaluated_at", "reason",
	"approval", "justification", "supported_obligations", "time",
}

// bind takes from a context what counts.
func bind(context jsontext.Value, members []string) (bound, error) {
	b := bound{Members: members, Whole: members == nil}
	all, err := object(context)
	if err != nil {
		return b, err
	}
	maps.DeleteFunc(all, func(name string, _ jsontext.Value) bool { return !b.counts(name) })
	if b.Whole {
		b.Members = slices.Sorted(maps.Keys(all))
	}
	b.Context, err = json.Marshal(all, json.Deterministic(true))
	return b, err
}

// counts reports whether a member of that name has to be as it was.
func (b *bound) counts(name string) bool {
	if slices.Contains(unbound, name) {
		return false
	}
	return b.Whole || slices.Contains(b.Members, name)
}

// covers reports whether a context has what counts as it was. A submission may
// add to a whole one.
func (b *bound) covers(context jsontext.Value, mayAdd bool) bool {
	all, err := object(context)
	if err != nil {
		return false
	}
	maps.DeleteFunc(all, func(name string, _ jsontext.Value) bool {
		return !b.counts(name) || mayAdd && !slices.Contains(b.Members, name)
	})
	was, err := object(b.Context)
	return err == nil && maps.EqualFunc(all, was, equal)
}

// sameCall reports whether subject, action and resource are those of an item,
// properties and all.
func (i *Item) sameCall(subject authzen.Subject, of *authzen.EvaluationRequest) bool {
	return sameSubject(subject, of.Subject) &&
		sameEntity(i.Resource, of.Resource) && equal(i.Resource.Properties, of.Resource.Properties) &&
		i.Action.Name == of.Action.Name && equal(i.Action.Properties, of.Action.Properties)
}

// sameSubject compares subjects but for who acts for them.
func sameSubject(a, b authzen.Subject) bool {
	return sameEntity(a, b) && equal(withoutActor(a.Properties), withoutActor(b.Properties))
}

// withoutActor takes act out of a subject's properties, and then properties
// that are empty: a submission that says the actor elsewhere has none.
func withoutActor(properties jsontext.Value) jsontext.Value {
	all, err := object(properties)
	if err != nil || properties == nil {
		return properties
	}
	if _, ok := all[memberAct]; !ok {
		return properties
	}
	delete(all, memberAct)
	if len(all) == 0 {
		return nil
	}
	rest, err := json.Marshal(all)
	if err != nil { // it has been read as JSON
		panic(err)
	}
	return rest
}

// equal reports whether two JSON values are equal (see the package comment).
// No value equals only no value.
func equal(a, b jsontext.Value) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// canonical returns the canonical form of a JSON value, its integers as they
// are.
func canonical(v jsontext.Value) (jsontext.Value, error) {
	c := v.Clone()
	err := c.Canonicalize(jsontext.CanonicalizeRawInts(false))
	return c, err
}

// object reads the members of a JSON object, none of no value.
func object(v jsontext.Value) (map[string]jsontext.Value, error) {
	all := map[string]jsontext.Value{}
	if v == nil {
		return all, nil
	}
	err := json.Unmarshal(v, &all)
	return all, err
}
