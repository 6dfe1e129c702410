package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/policy-service/policy-service/pdp/callers"
)

// Bounds of sessions.
const (
	defaultIdle  = 15 * time.Minute
	defaultMost  = 8 * time.Hour
	mostSessions = 10_000
)

// A session is a person who is signed in, in one browser.
type session struct {
	identity Identity
	claims   callers.Claims // of the ID token; nil for a sign-in by a link
	forms    string         // to which the tickets of forms are bound; stays when the same person signs in again
	started  time.Time
	used     time.Time
}

// sessions are the sessions by the SHA-256 of their id, so that who reads the memory of a dump has
// no id. A restart ends them all. It is safe for concurrent use.
type sessions struct {
	idle, most time.Duration
	now        func() time.Time

	mu   sync.Mutex
	byID map[[sha256.Size]byte]*session
}

// start begins a session and returns its id, which is new in any case: an id that a browser had
// before signing in is worth nothing after it.
func (s *sessions) start(who Identity, claims callers.Claims, forms string) (id string) {
	id = randomText()
	key := sha256.Sum256([]byte(id))
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= mostSessions {
		s.sweep(now)
	}
	proof := *who.Authn
	proof.Session = hex.EncodeToString(key[:4]) // tells sessions apart and is no secret
	who.Authn = &proof
	s.byID[key] = &session{identity: who, claims: claims, forms: forms, started: now, used: now}
	return id
}

// sweep removes sessions that have ended and, if there are too many, the one that was unused for
// longest.
func (s *sessions) sweep(now time.Time) {
	var oldest [sha256.Size]byte
	var unused time.Time
	for key, one := range s.byID {
		if s.ended(one, now) {
			delete(s.byID, key)
		} else if unused.IsZero() || one.used.Before(unused) {
			oldest, unused = key, one.used
		}
	}
	if len(s.byID) >= mostSessions {
		delete(s.byID, oldest)
	}
}

func (s *sessions) ended(one *session, now time.Time) bool {
	return now.Sub(one.used) >= s.idle || now.Sub(one.started) >= s.most
}

// find returns a copy of the session with an id, and notes that it was used.
func (s *sessions) find(id string) (found session, ok bool) { return s.get(id, true) }

// look is find for what does not count as a use: it does not prolong the session.
func (s *sessions) look(id string) (found session, ok bool) { return s.get(id, false) }

func (s *sessions) get(id string, use bool) (found session, ok bool) {
	key, now := sha256.Sum256([]byte(id)), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byID[key]
	if one == nil {
		return found, false
	}
	if s.ended(one, now) {
		delete(s.byID, key)
		return found, false
	}
	if use {
		one.used = now
	}
	return *one, true
}

// alive reports whether a session has not ended, and does not count as a use of it.
func (s *sessions) alive(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byID[sha256.Sum256([]byte(id))]
	return one != nil && !s.ended(one, s.now())
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, sha256.Sum256([]byte(id)))
}

// sift ends the sessions that are not to stay.
func (s *sessions) sift(stays func(session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range s.byID {
		if !stays(*one) {
			delete(s.byID, key)
		}
	}
}

// randomText returns 256 random bits in base64url.
func randomText() string {
	text := make([]byte, 32)
	_, _ = rand.Read(text) // never fails
	return base64.RawURLEncoding.EncodeToString(text)
}

// cookieName returns the name of the cookie with a session's id. Browsers accept the prefix __Host-
// over TLS alone; without TLS, the name has the port, because cookies are not separated by ports.
func (c *Console) cookieName() string {
	if c.secure {
		return "__Host-session"
	}
	return "session-" + c.port
}

// setCookie stores a session's id in the browser. Lax lets people come by a link from a message.
func (c *Console) setCookie(w http.ResponseWriter, id string) {
	http.SetCookie(w, &http.Cookie{Name: c.cookieName(), Value: id, Path: "/", Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

func (c *Console) clearCookie(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: c.cookieName(), Path: "/", MaxAge: -1, Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// sessionID returns the id that the browser sent, or "".
func (c *Console) sessionID(r *http.Request) string {
	cookie, err := r.Cookie(c.cookieName())
	if err != nil {
		return ""
	}
	return cookie.Value
}
