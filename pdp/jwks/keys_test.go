package jwks_test

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
)

// A withdrawn key remains valid for at most an hour. A key that cannot be fetched again remains
// valid for a day.
func TestKeysExpire(t *testing.T) {
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
		if err := verify(t, keys, test.token()); !test.want(err) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// verify parses a token as whoever verifies it does.
func verify(t *testing.T, keys *jwks.Keys, token string) error {
	t.Helper()
	parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	_, err = keys.Verify(t.Context(), parsed)
	return err
}

// A failed fetch is repeated after one second, then after twice as long, up to ten seconds.
func TestFailuresDelayTheNextFetch(t *testing.T) {
	issuer := jwkstest.New(t)
	issuer.Down.Store(true)
	clock := time.Now()
	keys := jwks.New(issuer.URL, http.DefaultTransport, func() time.Time { return clock })
	stranger := jwkstest.NewKey(t)
	for step, want := range []int64{1, 2, 2, 3, 3, 3, 3, 4} { // after so many seconds
		for range 30 {
			if err := verify(t, keys, jwkstest.Sign(t, jose.RS256, stranger, "k9", []byte("{}"), nil)); !errors.Is(err, jwks.ErrUnavailable) {
				t.Errorf("after %d s: %v", step, err)
			}
		}
		if got := issuer.Reads.Load(); got != want {
			t.Errorf("after %d s the keys were read %d times, want %d", step, got, want)
		}
		clock = clock.Add(time.Second)
	}
	issuer.Down.Store(false)
	clock = clock.Add(10 * time.Second)
	if err := verify(t, keys, jwkstest.Sign(t, jose.RS256, issuer.Key, "k1", []byte("{}"), nil)); err != nil {
		t.Error(err)
	}
}

// A token of a known key does not wait for an issuer that hangs. A token of an unknown key causes a
// single fetch.
func TestHangingIssuer(t *testing.T) {
	issuer := jwkstest.New(t)
	clock := time.Now()
	keys := jwks.New(issuer.URL, http.DefaultTransport, func() time.Time { return clock })
	good := jwkstest.Sign(t, jose.RS256, issuer.Key, "k1", []byte("{}"), nil)
	if err := verify(t, keys, good); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(time.Minute)
	release := issuer.Hang(t)
	strangers := make(chan error)
	token := jwkstest.Sign(t, jose.RS256, jwkstest.NewKey(t), "k9", []byte("{}"), nil)
	for range 30 {
		go func() { strangers <- verify(t, keys, token) }()
	}
	for issuer.Reads.Load() < 2 {
		runtime.Gosched()
	}
	if err := verify(t, keys, good); err != nil {
		t.Error(err)
	}
	release()
	for range 30 {
		if err := <-strangers; !errors.Is(err, jwks.ErrSignature) {
			t.Error(err)
		}
	}
	if got := issuer.Reads.Load(); got != 2 {
		t.Errorf("the keys were read %d times", got)
	}
}

// Keys that are too small, for other purposes or algorithms, or symmetric, verify nothing.
func TestUsableKeys(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	issuer := jwkstest.New(t)
	other := jwkstest.NewKey(t)
	issuer.Others = []jose.JSONWebKey{
		{Key: small.Public(), KeyID: "small", Use: "sig"},
		{Key: other.Public(), KeyID: "encrypts", Use: "enc"},
		{Key: other.Public(), KeyID: "other", Use: "sig", Algorithm: "PS256"},
		{Key: other, KeyID: "private", Use: "sig"},
		{Key: other.Public(), KeyID: "unsaid"},
	}
	keys := jwks.New(issuer.URL, http.DefaultTransport, time.Now)
	for _, test := range []struct {
		kid  string
		key  *rsa.PrivateKey
		want error
	}{
		{"k1", issuer.Key, nil}, {"unsaid", other, nil}, {"small", small, jwks.ErrSignature},
		{"encrypts", other, jwks.ErrSignature}, {"other", other, jwks.ErrSignature}, {"private", other, jwks.ErrSignature},
	} {
		if err := verify(t, keys, jwkstest.Sign(t, jose.RS256, test.key, test.kid, []byte("{}"), nil)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.kid, err)
		}
	}
}

func isNil(err error) bool    { return err == nil }
func isNotNil(err error) bool { return err != nil }
