package jwks_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// A key that its issuer has withdrawn is good for an hour at most; one that
// cannot be read again, for a day.
func TestKeysGrowOld(t *testing.T) {
	issuer := jwkstest.New(t)
	clock := time.Now()
	keys := jwks.New(issuer.URL, http.DefaultTransport, func() time.Time { return clock })
	token := func() string {
		return jwkstest.Sign(t, jose.RS256, issuer.Key, "k1", map[string]any{"iss": "https://idp.example.com"}, nil)
	}
	first := token()
	for _, test := range []struct {
		name  string
		later time.Duration
		act   func()
		token func() string
		want  func(error) bool
	}{
		{"at first", 0, func() {}, token, isNil},
		{"withdrawn, within the hour", 59 * time.Minute, func() { issuer.Key = jwkstest.NewKey(t) }, func() string { return first }, isNil},
		{"a token that nobody has signed has them read again", 2 * time.Minute, func() {}, func() string { return first[:len(first)-4] + "AAAA" }, isNotNil},
		{"withdrawn", 0, func() {}, func() string { return first }, isNotNil},
		{"the next key", 0, func() {}, token, isNil},
		{"they cannot be read", 23 * time.Hour, func() { issuer.Down.Store(true) }, token, isNil},
		{"they have not been read for a day", time.Hour, func() {}, token, func(err error) bool { return errors.Is(err, jwks.ErrUnavailable) }},
		{"they can be read", time.Minute, func() { issuer.Down.Store(false) }, token, isNil},
	} {
		clock = clock.Add(test.later)
		test.act()
		if _, err := keys.VerifySignature(t.Context(), test.token()); !test.want(err) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func isNil(err error) bool    { return err == nil }
func isNotNil(err error) bool { return err != nil }
