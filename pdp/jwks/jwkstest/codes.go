package jwkstest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"sync"
)

// Codes are authorization codes (RFC 6749, section 4.1) that are good once, by what
// was asked and who was at the browser. The zero value has none.
type Codes[P any] struct {
	mu     sync.Mutex
	issued map[string]issued[P]
}

type issued[P any] struct {
	asked  url.Values
	person P
}

// Issue returns a new code for an authorization request of a person.
func (c *Codes[P]) Issue(asked url.Values, person P) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.issued == nil {
		c.issued = make(map[string]issued[P])
	}
	code := rand.Text()
	c.issued[code] = issued[P]{asked, person}
	return code
}

// Redeem ends the code of a token request and returns what it was issued for. It is false unless
// the client is the one that asked, with the same redirect URI and resource, and with the verifier of
// its challenge (RFC 7636, S256).
func (c *Codes[P]) Redeem(r *http.Request, client string) (asked url.Values, person P, ok bool) {
	code := r.PostFormValue("code")
	c.mu.Lock()
	of, known := c.issued[code]
	delete(c.issued, code)
	c.mu.Unlock()
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	ok = known && client == of.asked.Get("client_id") &&
		r.PostFormValue("redirect_uri") == of.asked.Get("redirect_uri") && r.PostFormValue("resource") == of.asked.Get("resource") &&
		of.asked.Get("code_challenge_method") == "S256" && of.asked.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(challenge[:])
	return of.asked, of.person, ok
}
