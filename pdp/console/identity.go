package console

import (
	"context"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/callers"
)

// An Identity is a person who is signed in: what the person may do, and how the person proved to be
// who they are.
type Identity struct {
	callers.Caller
	Type  string // entity type of the person
	Authn *approval.Authn

	IDToken string // the token of Authn, which is kept beside votes; "" for none
}

// Principal returns the name of the person as an entity, TYPE:ID.
func (i Identity) Principal() string { return i.Type + ":" + i.ID }

type identityKey struct{}

// withIdentity returns a context of requests to the admin API in the name of a person.
func withIdentity(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// IdentityFrom returns the person in whose name the console asks the admin API. A request from a
// network never has one.
func IdentityFrom(ctx context.Context) (Identity, bool) {
	who, is := ctx.Value(identityKey{}).(Identity)
	return who, is
}
