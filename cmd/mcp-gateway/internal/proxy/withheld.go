package proxy

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A withheldError is why an answer of the server that did come is not passed on:
// it is too large, or nests too deep.
type withheldError struct {
	error
	text []byte // of the answer, or its beginning
}

func (e *withheldError) Unwrap() error { return e.error }

// withheld returns how a call has ended whose answer is withheld, and what its
// client gets: it has to know that the call was carried out, so that it does not
// repeat it. Both are nil if the text is not known to be the response to the call.
func (h *Handler) withheld(id jsontext.Value, err error) (ended, answer *wire.Message) {
	var withheld *withheldError
	if id == nil || !errors.As(err, &withheld) {
		return nil, nil
	}
	seen := wire.Look(withheld.text)
	if !seen.IsResponse() || seen.ID != nil && string(seen.ID) != string(id) {
		return nil, nil
	}
	why := fmt.Sprintf("its answer nests deeper than %d levels", wire.MaxDepth)
	if errors.Is(err, endpoint.ErrEventSize) {
		why = fmt.Sprintf("its answer is larger than max_reply: %d bytes", h.cfg.MaxReply)
	}
	return withhold(id, seen, why)
}

// withhold returns how a call has ended whose answer is withheld, and what its
// client gets.
func withhold(id jsontext.Value, seen wire.Glimpse, why string) (ended, answer *wire.Message) {
	ended, message := &wire.Message{ID: id, Result: jsontext.Value("{}")}, "the server carried out the call, but "+why
	if seen.Error {
		ended, message = &wire.Message{ID: id, Error: jsontext.Value("{}")}, "the server answered with an error, but "+why
	}
	return ended, wire.Refuse(id, wire.CodeInternal, message, enforce.Data{Reason: enforce.ReasonWithheld})
}
