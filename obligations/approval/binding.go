package approval

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A contextBinding binds an approval to members of a context. It holds a digest,
// because the size of the context itself is up to the caller.
type contextBinding struct {
	Members []string `json:"members,omitzero"` // names of the bound members, present or absent
	Whole   bool     `json:"whole,omitzero"`   // every member is bound except those of authzen.UnboundContext
	Digest  []byte   `json:"digest,omitzero"`  // SHA-256 of the canonical form of the bound members that were present
	// Context holds the bound members that were present. Only tokens and requests of
	// versions without digests have it.
	Context jsontext.Value `json:"context,omitzero"`
}

// bind binds the members of a context.
func bind(context jsontext.Value, members []string) (contextBinding, error) {
	b := contextBinding{Members: members, Whole: members == nil}
	counting, err := b.counting(context, false)
	if err != nil {
		return b, err
	}
	if b.Whole {
		b.Members = slices.Sorted(maps.Keys(counting))
	}
	b.Digest, err = digest(counting)
	return b, err
}

// counts reports whether the member of that name is bound.
func (b *contextBinding) counts(name string) bool {
	if slices.Contains(authzen.UnboundContext, name) {
		return false
	}
	return b.Whole || slices.Contains(b.Members, name)
}

// counting returns the bound members of a context. If mayAdd is set, it leaves
// out the members that a submission added to a whole context.
func (b *contextBinding) counting(context jsontext.Value, mayAdd bool) (jsonobject.Object, error) {
	all, err := jsonobject.Parse(context)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ jsontext.Value) bool {
		return !b.counts(name) || mayAdd && !slices.Contains(b.Members, name)
	})
	return all, nil
}

// covers reports whether the bound members of a context are unchanged. If mayAdd
// is set, a submission may add members to a whole context.
func (b *contextBinding) covers(context jsontext.Value, mayAdd bool) bool {
	is, err := b.counting(context, mayAdd)
	if err != nil {
		return false
	}
	if b.Digest == nil {
		was, err := jsonobject.Parse(b.Context)
		return err == nil && b.Context != nil && maps.EqualFunc(is, was, jsonobject.Equal)
	}
	sum, err := digest(is)
	return err == nil && bytes.Equal(sum, b.Digest)
}

// of returns the bound members of the context of a covered submission.
func (b *contextBinding) of(context jsontext.Value) (jsontext.Value, error) {
	if b.Digest == nil {
		return b.Context, nil
	}
	counting, err := b.counting(context, true)
	if err != nil {
		return nil, err
	}
	return counting.Encode()
}

// digest returns the SHA-256 of the canonical form of an object.
func digest(members jsonobject.Object) ([]byte, error) {
	text, err := json.Marshal(members)
	if err == nil {
		text, err = jsonobject.Canonical(text)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// sameCall reports whether subject, action and resource equal those of an item,
// including their properties.
func (i *Item) sameCall(subject authzen.Subject, of *authzen.EvaluationRequest) bool {
	return sameSubject(subject, of.Subject) &&
		sameEntity(i.Resource, of.Resource) && jsonobject.Equal(i.Resource.Properties, of.Resource.Properties) &&
		i.Action.Name == of.Action.Name && jsonobject.Equal(i.Action.Properties, of.Action.Properties)
}

// sameSubject compares subjects without their actors.
func sameSubject(a, b authzen.Subject) bool {
	return sameEntity(a, b) && jsonobject.Equal(withoutActor(a.Properties), withoutActor(b.Properties))
}

// withoutActor removes act from the properties of a subject. It returns nil if no
// property is left, because a submission that names the actor elsewhere has no
// properties.
func withoutActor(properties jsontext.Value) jsontext.Value {
	all, err := jsonobject.Parse(properties)
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
	if err != nil { // cannot fail: the members were parsed from JSON
		panic(err)
	}
	return rest
}
