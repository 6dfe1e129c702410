// Package jwkstest is an issuer of tokens, for the tests of what verifies them.
package jwkstest

import (
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// KeyID is the name of the key that an issuer publishes.
const KeyID = "k1"

// An Issuer publishes, at its URL, the key that its tokens are signed with.
type Issuer struct {
	*httptest.Server
	Key    *rsa.PrivateKey
	Others []jose.JSONWebKey // published beside Key; set before the first reading
	Reads  atomic.Int64      // how often the keys were read
	Down   atomic.Bool       // whether they cannot be

	slow atomic.Pointer[chan struct{}]
}

// Hang has every further reading wait, until the function that it returns is
// called or the test ends.
func (i *Issuer) Hang(t testing.TB) (release func()) {
	hold := make(chan struct{})
	i.slow.Store(&hold)
	release = sync.OnceFunc(func() {
		i.slow.Store(nil)
		close(hold)
	})
	t.Cleanup(release)
	return release
}

// New starts an issuer for the time of a test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{Key: NewKey(t)}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.Reads.Add(1)
		if i.Down.Load() {
			panic(http.ErrAbortHandler)
		}
		if hold := i.slow.Load(); hold != nil {
			<-*hold
		}
		keys := append([]jose.JSONWebKey{{Key: i.Key.Public(), KeyID: KeyID, Algorithm: "RS256", Use: "sig"}}, i.Others...)
		body, err := json.Marshal(map[string]any{"keys": keys})
		if err != nil {
			t.Error(err)
		}
		w.Write(body)
	}))
	t.Cleanup(i.Close)
	return i
}

// NewKey makes a key that nobody has published.
func NewKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Sign makes a token of a payload: bytes as they are, or what encodes as JSON.
// Headers are beside alg and kid.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, kid string, payload any, headers map[jose.HeaderKey]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, &jose.SignerOptions{ExtraHeaders: headers})
	if err != nil {
		t.Fatal(err)
	}
	body, raw := payload.([]byte)
	if !raw {
		if body, err = json.Marshal(payload); err != nil {
			t.Fatal(err)
		}
	}
	signed, err := signer.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
