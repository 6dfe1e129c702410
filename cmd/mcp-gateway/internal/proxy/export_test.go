package proxy

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Unanswered are calls whose responses are due.
type Unanswered struct{ *unanswered }

// NewUnanswered returns no calls.
func NewUnanswered() Unanswered { return Unanswered{newUnanswered()} }

// Keep keeps a call, whose wait ends after a while.
func (u Unanswered) Keep(id string, finish finishCall, wait time.Duration) bool {
	if !u.keep("", jsontext.Value(id), finish) {
		return false
	}
	u.expire("", jsontext.Value(id), wait)
	return true
}

// Take takes a call.
func (u Unanswered) Take(id string) finishCall { return u.take("", jsontext.Value(id)) }

// MaxUnanswered bounds the calls.
const MaxUnanswered = maxUnanswered
