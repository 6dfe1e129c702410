package enforce

import (
	"errors"
	"net/http"
	"slices"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	noDecision  = "the policy decision point gave no decision"
	notAskable  = "the policy decision point cannot take what the call asks"
	maxSentence = 512 // bytes of what the PDP says, for a client
)

// Undecided returns the refusal of a call about which the PDP gave no decision.
// Only where it may give one later is the client told to try again.
func Undecided(err error) *Refusal {
	refusal := &Refusal{Code: wire.CodeInternal, Status: statusOK, Message: noDecision, Data: Data{Reason: ReasonPDP}, Why: err.Error()}
	var status *client.StatusError
	switch {
	case !errors.As(err, &status) || isPassing(status.Status):
		refusal.Data.RetryAfter = 1
	case isAboutQuestion(status.Status):
		return unaskable(status.Message, err.Error())
	}
	return refusal
}

// unaskable refuses a call because the PDP does not understand what it asks, which
// the sentence of the PDP says.
func unaskable(sentence, why string) *Refusal {
	message := notAskable
	if sentence != "" && len(sentence) <= maxSentence {
		message += ": " + sentence
	}
	return &Refusal{Code: wire.CodeParams, Status: statusOK, Message: message, Data: Data{Reason: ReasonMapping}, Why: why}
}

// isPassing reports whether a status may be another one later.
func isPassing(status int) bool {
	return status < 400 || status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// isAboutQuestion reports whether a status is about what was asked, and not
// about who asked or where.
func isAboutQuestion(status int) bool {
	return slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, status)
}

// unaskableItem returns the refusal of a call of which the PDP does not
// understand one evaluation, or nil.
func unaskableItem(all []authzen.Decision) *Refusal {
	for _, d := range all {
		if d.Context != nil && d.Context.Error != nil && isAboutQuestion(d.Context.Error.Status) {
			return unaskable(d.Context.Error.Message, d.Context.Error.Message)
		}
	}
	return nil
}
