package approval_test

import (
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An actor has one name: one that is named both ways is refused, because readers differ. Its denial
// is not requestable.
func TestActorNamedBothWays(t *testing.T) {
	for _, actor := range []string{
		`{"sub":"ca","id":"rol"}`, `{"sub":"carol","id":"carol"}`, `{"sub":"carol","iss":"https://","issuer":"idp.example.com"}`,
		`{"sub":"bot","act":{"sub":"ca","id":"rol"}}`,
	} {
		d := open(t, plain)
		var invalid *authzen.ValidationError
		s := d.submission(t, push)
		s.Client = jsontext.Value(`{"actor":` + actor + `}`)
		if _, err := d.Submit(t.Context(), gateway, "", s); !errors.As(err, &invalid) || invalid.Path != "/client/actor" {
			t.Errorf("submission with %s: %v", actor, err)
		}
		denied := evaluation(t, edit(t, `"roles"`, `"act": `+actor+`, "roles"`))
		if offer, err := d.Offer(&authzen.RequestableDenial{Template: "sre", Request: denied}); offer != nil || err != nil {
			t.Errorf("denial with %s: %+v, %v", actor, offer, err)
		}
	}
}
