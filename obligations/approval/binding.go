package approval

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A bound is what of a context an approval is bound to. It has a digest of
// that and not the context, which is as long as who asks makes it.
type contextBinding struct {
	Members []string `json:"members,omitzero"` // that count, whether they are there or not
	Whole   bool     `json:"whole,omitzero"`   // every member counts but those of authzen.UnboundContext
	Digest  []byte   `json:"digest,omitzero"`  // SHA-256 of the canonical form of those that were there
	// Context are those that were there: of a token or a request of before digests.
	Context jsontext.Value `json:"context,omitzero"`
}

// bind takes from a context what counts.
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

// counts reports whether a member of that name has to be as it was.
func (b *contextBinding) counts(name string) bool {
	if slices.Contains(authzen.UnboundContext, name) {
		return false
	}
	return b.Whole || slices.Contains(b.Members, name)
}

// counting returns the members of a context that count. A submission may add to
// a whole one, which does not count.
func (b *contextBinding) counting(context jsontext.Value, mayAdd bool) (map[string]jsontext.Value, error) {
	all, err := object(context)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ jsontext.Value) bool {
		return !b.counts(name) || mayAdd && !slices.Contains(b.Members, name)
	})
	return all, nil
}

// covers reports whether a context has what counts as it was. A submission may
// add to a whole one.
func (b *contextBinding) covers(context jsontext.Value, mayAdd bool) bool {
	is, err := b.counting(context, mayAdd)
	if err != nil {
		return false
	}
	if b.Digest == nil {
		was, err := object(b.Context)
		return err == nil && b.Context != nil && maps.EqualFunc(is, was, equal)
	}
	sum, err := digest(is)
	return err == nil && bytes.Equal(sum, b.Digest)
}

// of returns what counts of the context of a submission that is covered.
func (b *contextBinding) of(context jsontext.Value) (jsontext.Value, error) {
	if b.Digest == nil {
		return b.Context, nil
	}
	counting, err := b.counting(context, true)
	if err != nil {
		return nil, err
	}
	return json.Marshal(counting, json.Deterministic(true))
}

// digest is the SHA-256 of the canonical form of an object.
func digest(members map[string]jsontext.Value) ([]byte, error) {
	text, err := json.Marshal(members)
	if err == nil {
		err = (*jsontext.Value)(&text).Canonicalize(jsontext.CanonicalizeRawInts(false))
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
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
