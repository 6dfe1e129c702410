package console

import (
	"context"
	"time"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/callers"
)

// OwnPath is where somebody goes after signing in.
var OwnPath = ownPath

// Sessions are those of a console, of nobody in particular.
type Sessions struct{ all sessions }

func NewSessions(idle, most time.Duration, now func() time.Time) *Sessions {
	return &Sessions{sessions{idle: idle, most: most, now: now, byID: make(map[[32]byte]*session)}}
}

func (s *Sessions) Start() string { return s.all.start(Identity{Authn: &approval.Authn{}}, nil, "") }

func (s *Sessions) End(id string) { s.all.end(id) }

func (s *Sessions) Len() int { return len(s.all.byID) }

func (s *Sessions) Has(id string) bool {
	_, ok := s.all.find(id)
	return ok
}

// SignIns are requests to a provider that have no answer yet.
type SignIns struct{ all signIns }

func NewSignIns(now func() time.Time) *SignIns {
	return &SignIns{signIns{now: now, byState: make(map[string]signIn)}}
}

func (s *SignIns) Begin(d time.Duration) (state string) {
	now := s.all.now()
	return s.all.begin(signIn{begun: now, until: now.Add(d)})
}

func (s *SignIns) End(state string) bool {
	_, err := s.all.end(state)
	return err == nil
}

func (s *SignIns) Len() int { return len(s.all.byState) }

// Turns limit the pages that are made for one person at the same time.
type Turns struct{ all *turns }

func NewTurns(processors int, answers func() int64) *Turns {
	return &Turns{newTurns(processors, answers)}
}

func (t *Turns) Enter(ctx context.Context, person string) (leave func(), err error) {
	return t.all.enter(ctx, person)
}

func (t *Turns) Len() int { return len(t.all.of) }

// ErrTurn is the error of Enter.
var ErrTurn = errTurn

// Person returns who the claims of an ID token describe, by settings.
func Person(o *OIDC, claims callers.Claims) (callers.Caller, error) { return o.person(claims) }

// RequestTitle returns the title of the page of an open request.
func RequestTitle(action string) string { return requestTitle(action, true) }

// IsToolCall reports whether a sentence calls an action running a tool.
func IsToolCall(resource, action string) bool { return isToolCall(resource, action) }
