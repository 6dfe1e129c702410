package callers

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// ErrActors means that the actors of a token cannot be parsed. Such a token is useless where people
// must be distinguished.
var ErrActors = errors.New("the actors of the token cannot be parsed, so it can neither request nor give an approval")

// claimActors is the claim with the actors of a token (RFC 8693, section 4.1).
const claimActors = "act"

// claimClients are the claims with the client of a token (OpenID Connect Core, section 2; RFC 8693,
// section 4.3).
var claimClients = []string{"azp", "client_id"}

// with adds the names of the token's actors to the caller: a person who acts for two people does
// not count as two people. A client is not a name of the person, because many people share it.
func (c Caller) with(i Issuer, claims Claims) (Caller, error) {
	actors, err := actorsIn(claims, i.Issuer)
	var invalid *authzen.ValidationError
	if errors.As(err, &invalid) {
		c.Unclear = fmt.Errorf("%w: %s", ErrActors, invalid)
	} else if err != nil {
		return Caller{}, err
	}
	c.Names = append(c.Names, actors...)
	for _, claim := range claimClients {
		if claims[claim] == nil {
			continue
		}
		client, err := claims.Text(claim)
		if err != nil {
			c.Unclear = fmt.Errorf("%w: %s", ErrActors, err)
			continue
		}
		c.Clients = append(c.Clients, client, i.Issuer+separator+client)
	}
	return c, nil
}

// actorsIn returns the names of a token's actors, nearest first. An actor without an issuer has the
// issuer of the one before.
func actorsIn(claims Claims, issuer string) (names []string, err error) {
	act := claims[claimActors]
	if act == nil {
		return nil, nil
	}
	if _, ok := act.(map[string]any); !ok {
		return nil, errors.New("act of the token is not an object")
	}
	raw, err := json.Marshal(act)
	if err != nil {
		return nil, fmt.Errorf("act of the token: %w", err)
	}
	chain, err := authzen.Delegates("/"+claimActors, raw)
	for _, actor := range chain {
		if actor.Issuer != "" {
			issuer = actor.Issuer
		}
		names = append(names, actor.ID, issuer+separator+actor.ID)
	}
	return names, err
}
