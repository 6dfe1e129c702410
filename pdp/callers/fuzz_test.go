package callers_test

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// Of claims that are taken, a reader that ignores letter case and takes the last
// of two names reads the same.
func FuzzClaims(f *testing.F) {
	p := jwkstest.New(f)
	v := verifier(f, callers.Auth{JWT: []callers.Issuer{{Issuer: idp, Audience: "pdp", JWKSURL: p.URL}}})
	exp := now.Add(time.Hour).Unix()
	for _, more := range []string{``, `,"EXP":1`, `,"Iss":"x"`, `,"sub":"root"`, `,"s\u0075b":"root"`, `,"ſub":"root"`, `,"nbf":1e300`, `,"iat":-1`, `,"aud":null`, `,"cnf":{}`, `,"n":{"exp":1}`} {
		f.Add(fmt.Appendf(nil, `{"iss":%q,"aud":["pdp"],"sub":"gateway","exp":%d%s}`, idp, exp, more))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		who, err := v.Verify(request(jwkstest.Sign(t, jose.RS256, p.Key, "k1", payload, nil)))
		if err != nil {
			return
		}
		var other struct {
			Iss, Sub string
			Aud      any
			Exp      float64
			Nbf      float64
		}
		if err := stdjson.Unmarshal(payload, &other); err != nil {
			t.Fatalf("another reader refuses %q: %v", payload, err)
		}
		list, _ := other.Aud.([]any)
		if other.Iss != idp || !slices.Contains(append(list, other.Aud), any("pdp")) || int64(other.Exp) <= now.Unix() || int64(other.Nbf) > now.Add(time.Minute).Unix() || who.ID != idp+"#"+other.Sub {
			t.Errorf("%q is of %q, and another reader has %+v", payload, who.ID, other)
		}
	})
}
