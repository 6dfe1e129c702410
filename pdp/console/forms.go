package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"time"
)

// formTime is how long a form is good: as long as a session can last.
const formTime = defaultMost

// errForm means that a form is not of this session and page, or was sent before.
var errForm = errors.New("this form was sent before, or is of another sign-in")

// forms issues and takes the tickets of forms that decide. A ticket is bound to a session and a
// subject, such as the task of a request, and is taken once. It is safe for concurrent use.
type forms struct {
	key []byte
	now func() time.Time

	mu    sync.Mutex
	taken map[string]time.Time // when a ticket was taken
}

func newForms(now func() time.Time) forms {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return forms{key: key, now: now, taken: make(map[string]time.Time)}
}

// issue returns a new ticket.
func (f *forms) issue(session, subject string) string {
	once := randomText()
	return once + "." + f.mac(session, subject, once)
}

func (f *forms) mac(session, subject, once string) string {
	h := hmac.New(sha256.New, f.key)
	for _, part := range []string{"policy-service console form 1", session, subject, once} {
		h.Write([]byte(part))
		h.Write([]byte{'\n'})
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// take takes a ticket, or returns errForm.
func (f *forms) take(session, subject, ticket string) error {
	once, mac, _ := strings.Cut(ticket, ".")
	if once == "" || !hmac.Equal([]byte(mac), []byte(f.mac(session, subject, once))) {
		return errForm
	}
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, at := range f.taken {
		if now.Sub(at) >= formTime {
			delete(f.taken, other)
		}
	}
	if _, taken := f.taken[once]; taken {
		return errForm
	}
	f.taken[once] = now
	return nil
}

// release makes a ticket good again: what it was taken for was not done.
func (f *forms) release(ticket string) {
	once, _, _ := strings.Cut(ticket, ".")
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.taken, once)
}
