package consent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
)

// Paths of the handler.
const (
	PathStart    = "/oauth/start"
	PathLogin    = "/oauth/login"
	PathCallback = "/oauth/callback"
	PathClient   = "/oauth/client.json"
)

// Lifetime is how long a person has from the ticket to the answer.
const Lifetime = 10 * time.Minute

// ErrNoPerson means that nobody can log in as the caller.
var ErrNoPerson = errors.New("the server needs the consent of a person, and the caller is none who can log in")

// A Login is the login at the issuer of callers.
type Login interface {
	// URL returns the address at which the person logs in.
	URL(context.Context, credential.Authorization) (string, error)
	// Person returns who has logged in, verified and with this nonce.
	Person(context.Context, credential.Authorization) (credential.Subject, error)
}

// A Config configures a [Handler].
type Config struct {
	Base   string                        // URL of the gateway
	Grants map[string]*credential.Grants // by server
	Store  *credential.Store
	Seal   *seal.Key
	// Login is that of callers with a token of Issuer; nil lets none of them grant.
	Login  Login
	Issuer string
	// Local reports whether a caller is the one of this host.
	Local func(credential.Subject) bool
	Log   *slog.Logger
	Now   func() time.Time // nil is time.Now
}

// A Handler serves the pages. It is safe for concurrent use.
type Handler struct{ cfg Config }

// New returns a Handler.
func New(cfg Config) *Handler {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Handler{cfg}
}

// A ticket lets a caller begin.
type ticket struct {
	ID      string    `json:"id"`
	Server  string    `json:"server"`
	Tenant  string    `json:"tenant,omitzero"`
	Issuer  string    `json:"issuer,omitzero"`
	Type    string    `json:"type"`
	Caller  string    `json:"caller"`
	Expires time.Time `json:"expires"`
}

const sealTicket = "oauth ticket"

// Ticket returns the address at which the person behind a caller lets the gateway act
// for them at the server, and the id of the ticket. The error is [ErrNoPerson] for a
// caller for whom nobody could complete it.
func (h *Handler) Ticket(server string, who credential.Subject) (address, id string, err error) {
	if !h.cfg.Local(who) && (h.cfg.Login == nil || who.Issuer != h.cfg.Issuer) {
		return "", "", ErrNoPerson
	}
	t := ticket{rand.Text(), server, who.Tenant, who.Issuer, who.Type, who.ID, h.cfg.Now().Add(Lifetime).Truncate(time.Second)}
	sealed, err := h.cfg.Seal.Seal(sealTicket, t)
	if err != nil {
		return "", "", err
	}
	return Address(h.cfg.Base, PathStart) + "?" + url.Values{"ticket": {sealed}}.Encode(), t.ID, nil
}

// Address returns the URL of a path of the gateway.
func Address(base, path string) string { return strings.TrimSuffix(base, "/") + path }

func (t *ticket) subject() credential.Subject {
	return credential.Subject{Tenant: t.Tenant, Issuer: t.Issuer, Type: t.Type, ID: t.Caller}
}

// is reports whether a person is the one of the ticket.
func (t *ticket) is(who credential.Subject) bool {
	who.Token = ""
	return t.subject() == who
}

var errTicket = errors.New("this address has expired or is not one of this gateway: call the server again to get a new one")

// open reads a ticket that has not ended.
func (h *Handler) open(sealed string) (*ticket, error) {
	t := new(ticket)
	if h.cfg.Seal.Open(sealTicket, sealed, t) != nil {
		return nil, errTicket
	}
	return t, h.check(t)
}

func (h *Handler) check(t *ticket) error {
	if h.cfg.Now().After(t.Expires) || h.cfg.Grants[t.Server] == nil {
		return errTicket
	}
	return nil
}

// name describes the caller for the person.
func (t *ticket) name() string {
	if t.Tenant == "" {
		return t.Caller
	}
	return fmt.Sprintf("%s of %s", t.Caller, t.Tenant)
}
