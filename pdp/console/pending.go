package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// Bounds of signing in.
const (
	signInTime  = 10 * time.Minute // from the first page to the answer of the provider
	stepUpTime  = 5 * time.Minute  // for how long a verdict waits
	mostSignIns = 10_000
)

// A signIn is a request to the provider that has no answer yet.
type signIn struct {
	browser  [sha256.Size]byte // digest of what the browser has to send with the answer
	nonce    string
	verifier string // of PKCE (RFC 7636)
	next     string // path at which the person goes on
	other    bool   // the provider asks for an account, also a person whom it knows
	begun    time.Time
	until    time.Time

	pending *pendingVerdict // the verdict that the answer confirms; nil if the person signs in

	used bool // it had its answer, and is kept to say so
}

// signIns are the requests without an answer, by state. Each has one answer. It is safe for concurrent
// use.
type signIns struct {
	now func() time.Time

	mu      sync.Mutex
	byState map[string]signIn
}

// begin keeps a request and returns its state.
func (s *signIns) begin(one signIn) (state string) {
	state = randomText()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byState) >= mostSignIns {
		s.sweep()
	}
	s.byState[state] = one
	return state
}

// sweep removes what has ended and, if there are too many, the oldest one.
func (s *signIns) sweep() {
	now := s.now()
	var oldest string
	for state, one := range s.byState {
		if !now.Before(one.until) {
			delete(s.byState, state)
		} else if oldest == "" || one.begun.Before(s.byState[oldest].begun) {
			oldest = state
		}
	}
	if len(s.byState) >= mostSignIns {
		delete(s.byState, oldest)
	}
}

// find returns a request that still waits.
func (s *signIns) find(state string) (one signIn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok = s.byState[state]
	return one, ok && !one.used && s.now().Before(one.until)
}

var (
	// errUsed means that a request to the provider had its answer before.
	errUsed = errors.New("this answer of the identity provider was used before. It counts once, so nothing was done now. " +
		"If you were signing in, you may be signed in. If you were deciding, the page of the request shows whether the decision counts")
	// errLate means that no request waits for an answer of the provider.
	errLate = errors.New("this answer of the identity provider came too late, or this console did not ask for it. Begin again, and finish within five minutes")
)

// end returns a request that still waits, and ends it. The error is errUsed or errLate.
func (s *signIns) end(state string) (one signIn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.byState[state]
	switch {
	case !ok || !s.now().Before(one.until):
		delete(s.byState, state)
		return one, errLate
	case one.used:
		return one, errUsed
	}
	s.byState[state] = signIn{used: true, begun: one.begun, until: one.until}
	return one, nil
}

// is reports whether a browser is the one that began.
func (s *signIn) is(browser string) bool {
	digest := sha256.Sum256([]byte(browser))
	return browser != "" && subtle.ConstantTimeCompare(s.browser[:], digest[:]) == 1
}

// browserCookie returns the name of the cookie by which a browser is known before anybody is signed in.
func (c *Console) browserCookie() string {
	if c.secure {
		return "__Host-browser"
	}
	return "browser-" + c.port
}

// browser returns what the browser is known by, and makes that up for a new one.
func (v *visit) browser() string {
	if cookie, err := v.r.Cookie(v.browserCookie()); err == nil && len(cookie.Value) == len(randomText()) {
		return cookie.Value
	}
	id := randomText()
	http.SetCookie(v.w, &http.Cookie{
		Name: v.browserCookie(), Value: id, Path: "/", MaxAge: int(signInTime / time.Second),
		Secure: v.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	return id
}

// beginSignIn keeps a request to the provider that leads to a path afterwards.
func (v *visit) beginSignIn(next string) (state string, one signIn) {
	now := v.config.Now()
	one = signIn{
		browser: sha256.Sum256([]byte(v.browser())), nonce: randomText(), verifier: oauth2.GenerateVerifier(),
		next: ownPath(next), begun: now, until: now.Add(signInTime),
	}
	return v.signIns.begin(one), one
}
