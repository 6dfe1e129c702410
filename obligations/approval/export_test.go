package approval

import (
	"testing"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Next calls the state machine with an event in words: vote:approve, vote:deny, or the kind of any
// other event.
func Next(r Request, what, by string, items []int, now time.Time) (Request, error) {
	e := event{kind: eventKind(what), items: items, use: Use{RequestID: by, Question: []byte(by), Time: now}, newID: func() string { return "apr_" + by }}
	if what == "vote:approve" || what == "vote:deny" {
		e.kind, e.vote = eventVote, Vote{Approver: authzen.Subject{Type: "approver", ID: by}, Approve: what == "vote:approve"}
	}
	return next(r, e, now)
}

// ReadAs signs a binding token. It returns the errors of verifying it as an approval and as a
// binding token.
func ReadAs() (anApproval, aBinding error) {
	key, err := newSigningKey(time.Unix(0, 0))
	if err != nil {
		return err, err
	}
	ring := keyRing{key}
	token, err := ring.sign(typeBinding, proof{})
	if err != nil {
		return err, err
	}
	return ring.verify(typeApproval, token, &state{}), ring.verify(typeBinding, token, &proof{})
}

// Signed returns claims signed with the service's key.
func (s *Service) Signed(t testing.TB, kind string, claims any) string {
	t.Helper()
	token, err := s.ring().sign(kind, claims)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
