package consent

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
)

// Purposes of a sealed state: one of them is no other.
const (
	sealLogin    = "oauth login"
	sealCallback = "oauth callback"
)

// A state is what the gateway needs when the person comes back. It is sealed, so that
// the verifier of PKCE in it is a secret.
type state struct {
	Ticket   ticket            `json:"ticket"`
	Verifier string            `json:"verifier"`
	Nonce    string            `json:"nonce,omitzero"`
	Browser  [sha256.Size]byte `json:"browser"` // digest of the secret in its cookie
}

// authorization makes a new state, and returns the request with it.
func (h *Handler) authorization(purpose string, t *ticket, browser [sha256.Size]byte) (a credential.Authorization, err error) {
	s := state{Ticket: *t, Verifier: credential.NewVerifier(), Browser: browser}
	if purpose == sealLogin {
		s.Nonce = rand.Text()
	}
	a = credential.Authorization{Verifier: s.Verifier, Nonce: s.Nonce}
	a.State, err = h.cfg.Seal.Seal(purpose, s)
	return a, err
}

var errBrowser = errors.New("this is not the browser in which the login was begun")

// resume reads the state in an answer. The error is the one of a state that does not
// open, has ended, or was begun in another browser.
func (h *Handler) resume(purpose string, r *http.Request) (*state, error) {
	s := new(state)
	if h.cfg.Seal.Open(purpose, r.FormValue("state"), s) != nil {
		return nil, errTicket
	}
	if err := h.check(&s.Ticket); err != nil {
		return nil, err
	}
	cookie, err := r.Cookie(h.cookie(&s.Ticket))
	if err != nil {
		return nil, errBrowser
	}
	if digest := sha256.Sum256([]byte(cookie.Value)); subtle.ConstantTimeCompare(digest[:], s.Browser[:]) != 1 {
		return nil, errBrowser
	}
	return s, nil
}

// answer returns the request with the answer to it.
func (s *state) answer(r *http.Request) credential.Authorization {
	return credential.Authorization{Verifier: s.Verifier, Nonce: s.Nonce, Code: r.FormValue("code"), Issuer: r.FormValue("iss")}
}

// cookie returns the name of the cookie for a ticket: with TLS, one that no other host
// can set (RFC 6265bis, section 4.1.3.2).
func (h *Handler) cookie(t *ticket) string {
	name := "mcp-gateway-" + t.ID
	if h.secure() {
		name = "__Host-" + name
	}
	return name
}

func (h *Handler) secure() bool { return strings.HasPrefix(h.cfg.Base, "https://") }

// setSecret gives the browser a secret for a ticket, and returns its digest.
func (h *Handler) setSecret(w http.ResponseWriter, t *ticket) [sha256.Size]byte {
	secret := rand.Text()
	http.SetCookie(w, &http.Cookie{
		Name: h.cookie(t), Value: secret, Path: "/", Secure: h.secure(), HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int(Lifetime.Seconds()),
	})
	return sha256.Sum256([]byte(secret))
}

// removeSecret has the browser forget the secret.
func (h *Handler) removeSecret(w http.ResponseWriter, t *ticket) {
	http.SetCookie(w, &http.Cookie{Name: h.cookie(t), Path: "/", Secure: h.secure(), HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: -1})
}
