package approval

import (
	"slices"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Approver is who decides: the entity that policies are asked about, and
// every verified name of the person, who may have several credentials.
type Approver struct {
	authzen.Subject
	Names []string
}

// vote returns what the approver says, as yet undecided.
func (a Approver) vote() Vote {
	return Vote{Approver: authzen.Subject{Type: a.Type, ID: a.ID}, Names: beside(a.ID, a.Names), Channel: channelAdmin}
}

// beside returns the names that there are beside an id.
func beside(id string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == id })
}

// by reports whether a vote is of a person with one of those names, of whatever
// type: types have aliases.
func (v *Vote) by(names []string) bool {
	return slices.ContainsFunc(v.names(), func(name string) bool { return slices.Contains(names, name) })
}

// names are all of who votes.
func (v *Vote) names() []string { return append([]string{v.Approver.ID}, v.Names...) }

// involves reports whether a person with one of those names is who asked, or who
// acted, of whatever type.
func (r *Request) involves(names []string) bool {
	is := func(name string) bool { return name != "" && slices.Contains(names, name) }
	return is(r.Subject.ID) || is(r.Caller) || slices.ContainsFunc(r.CallerNames, is) ||
		slices.ContainsFunc(r.Actors, func(a Actor) bool { return is(a.ID) || is(a.full()) })
}

// full is the actor's name of issuer and subject, as callers with tokens have
// it; "" without an issuer.
func (a Actor) full() string {
	if a.Issuer == "" {
		return ""
	}
	return a.Issuer + "#" + a.ID
}
