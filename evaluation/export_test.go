package evaluation

import (
	"github.com/cedar-policy/cedar-go"
)

// DecideCedar decides a request that is in Cedar's form already, as some are
// that AuthZEN cannot say.
func (s *Snapshot) DecideCedar(r cedar.Request) *Outcome {
	q := &query{request: r, store: s.store}
	decision, diagnostic := cedar.Authorize(s.policies.candidates(q), q, q.request)
	return s.outcome(bool(decision), diagnostic, &query{})
}
