package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A link signs one person in, once, within linkTime. Whoever can read the state directory of a
// running service can make one: that person is an operator of the service in any case.
const linkTime = time.Minute

// pathLocal is where a link leads.
const pathLocal = "/sign-in/local"

// localFile is the name of the file, in the state directory, with what makes links while the console
// runs.
const localFile = "console-local"

// A local is the content of localFile.
type local struct {
	URL     string `json:"url"`
	Type    string `json:"type"`             // entity type of the people who sign in
	Key     []byte `json:"key,omitempty"`    // of the tickets; absent if links are refused
	Refused string `json:"refused,omitzero"` // why links are refused
}

// A ticket is the signed content of a link.
type ticket struct {
	Type  string    `json:"type"`
	ID    string    `json:"id"`
	Until time.Time `json:"until"`
	Once  string    `json:"once"` // random: a ticket is used once
}

// ErrNoConsole means that no console runs on a state directory.
var ErrNoConsole = errors.New("no console is known to run on the state directory")

// ErrNoLinks means that nobody signs in to a console by a link.
var ErrNoLinks = errors.New("the console refuses links")

// ErrTicket means that a ticket is forged, too old or used.
var ErrTicket = errors.New("the link has been used, or is older than a minute, or is of another run of the service")

// Link returns the URL that signs a person in to the console that runs on a state directory. The
// error is [ErrNoConsole] if none does, and [ErrNoLinks] with the reason if it refuses links.
func Link(state string, who authzen.Subject, now time.Time) (string, error) {
	text, err := os.ReadFile(filepath.Join(state, localFile))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoConsole, err)
	}
	var at local
	if err := json.Unmarshal(text, &at); err != nil {
		return "", fmt.Errorf("read %s: %w", localFile, err)
	}
	if at.Refused != "" {
		return "", fmt.Errorf("%w: %s", ErrNoLinks, at.Refused)
	}
	if who.Type != at.Type {
		return "", fmt.Errorf("people who sign in are of type %s, as approver_type says: %s:%s", at.Type, at.Type, who.ID)
	}
	content, err := json.Marshal(ticket{Type: who.Type, ID: who.ID, Until: now.Add(linkTime).UTC(), Once: randomText()})
	if err != nil {
		return "", fmt.Errorf("encode link: %w", err)
	}
	return at.URL + pathLocal + "?ticket=" + sign(at.Key, content), nil
}

func sign(key, content []byte) string {
	return base64.RawURLEncoding.EncodeToString(content) + "." + base64.RawURLEncoding.EncodeToString(mac(key, content))
}

func mac(key, content []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("policy-service console link 1\n"))
	h.Write(content)
	return h.Sum(nil)
}

// links redeems tickets. It is safe for concurrent use.
type links struct {
	local
	now func() time.Time

	mu   sync.Mutex
	used map[string]time.Time // when a ticket ends, by ticket.Once
	path string               // of localFile; "" while it is not published
}

// open publishes what makes links, or why they are refused, in the state directory. The function that
// it returns removes it.
func (l *links) open(state, refused string) (unpublish func(), err error) {
	l.mu.Lock()
	l.path = filepath.Join(state, localFile)
	l.mu.Unlock()
	return l.close, l.publish(refused)
}

func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = os.Remove(l.path)
	l.path = ""
}

// publish writes localFile again, unless it is not published. While links are refused, the key changes: those
// made before are worth nothing afterwards.
func (l *links) publish(refused string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused != "" {
		l.Key = newKey()
	}
	if l.path == "" {
		return nil
	}
	now := l.local
	if now.Refused = refused; refused != "" {
		now.Key = nil
	}
	text, err := json.Marshal(now)
	if err == nil {
		_ = os.Remove(l.path) // of a service that was killed; it may have another mode
		err = os.WriteFile(l.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("publish the console's address: %w", err)
	}
	return nil
}

func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// read returns a ticket that is valid and unused, or [ErrTicket].
func (l *links) read(text string) (t ticket, err error) {
	encoded, signature, _ := strings.Cut(text, ".")
	content, errContent := base64.RawURLEncoding.DecodeString(encoded)
	given, errGiven := base64.RawURLEncoding.DecodeString(signature)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errContent != nil || errGiven != nil || !hmac.Equal(given, mac(l.Key, content)) || json.Unmarshal(content, &t) != nil {
		return t, ErrTicket
	}
	if _, used := l.used[t.Once]; used || !l.now().Before(t.Until) {
		return t, ErrTicket
	}
	return t, nil
}

// redeem uses a ticket.
func (l *links) redeem(text string) (ticket, error) {
	t, err := l.read(text)
	if err != nil {
		return t, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for once, until := range l.used {
		if !l.now().Before(until) {
			delete(l.used, once)
		}
	}
	if _, used := l.used[t.Once]; used {
		return t, ErrTicket
	}
	l.used[t.Once] = t.Until
	return t, nil
}
