package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A ConsentError means that the person behind a caller has to visit a page before the
// upstream can be called in their name.
type ConsentError struct {
	URL, ID string // of the page, and of this visit
	// Wait waits until the person has been there, or ctx ends.
	Wait func(context.Context)
}

func (e *ConsentError) Error() string {
	return "the person behind the caller has to log in at the server first"
}

// A consentState is what a client was told about a page that has to be visited. It
// gets back to the same call with it (MCP 2026-07-28, "Multi Round-Trip Requests").
type consentState struct {
	Owner   owner     `json:",inline"`
	Expires time.Time `json:"expires"`
	Round   int       `json:"round"` // of being told
	// State and Responses are those with which the call came, for others.
	State     jsontext.Value `json:"state,omitzero"`
	Responses jsontext.Value `json:"responses,omitzero"`

	declined bool
}

const (
	sealConsent = "consent"
	consentName = "gw.login" // of the request for input
	// consentRounds is how often a client is told, and told to come back. The Go SDK
	// gives up at the third time in a call (1.8).
	consentRounds   = 2
	consentLifetime = 10 * time.Minute
)

// openConsent reads the state of a call that comes back after its person was led to a
// page, and restores the call. A state that the gateway has not sealed is the
// server's.
func (h *Handler) openConsent(c *call) *endpoint.Failure {
	told := new(consentState)
	if c.Params.RequestState == "" || h.cfg.Seal == nil || h.cfg.Seal.Open(sealConsent, c.Params.RequestState, told) != nil {
		return nil
	}
	refused := &endpoint.Failure{Status: http.StatusOK, Fault: &wire.Fault{Code: wire.CodeParams, ID: c.Message.ID, Reason: "the requestState belongs to another caller, or has expired"}}
	if told.Owner != ownerOf(h.cfg.Server, c.Caller) || time.Now().After(told.Expires) {
		return refused
	}
	var answers map[string]struct {
		Action string `json:"action"`
	}
	if c.Params.InputResponses != nil && json.Unmarshal(c.Params.InputResponses, &answers) != nil {
		return refused
	}
	if answer, given := answers[consentName]; given {
		told.declined = answer.Action != "accept"
	}
	restored, err := c.Message.WithInput(told.State, told.Responses)
	if err == nil {
		c.Message = restored
		c.Params, err = restored.Read()
	}
	if err != nil {
		return refused
	}
	c.told = told
	return nil
}

// awaitConsent holds a call whose person was led to a page until they have been
// there. It returns false if it has answered the call.
func (h *Handler) awaitConsent(ctx context.Context, c *call) bool {
	if c.told.declined {
		_ = c.reply.Message(http.StatusOK, wire.Refuse(c.Message.ID, wire.CodeInternal, "the person behind the caller does not want to log in at the server", enforce.Data{Reason: enforce.ReasonLogin}))
		return false
	}
	if h.cfg.Credential == nil {
		return true
	}
	if _, err := h.cfg.Credential.Token(ctx, c.Caller, nil); asConsent(err) == nil {
		return true // the call finds out
	} else {
		ctx, cancel := context.WithTimeout(ctx, h.cfg.Hold)
		defer cancel()
		asConsent(err).Wait(ctx)
	}
	return true
}

// asConsent returns the consent error in an error, or nil.
func asConsent(err error) *ConsentError {
	var asks *ConsentError
	errors.As(err, &asks)
	return asks
}

// askConsent answers a call that was not sent with the page to visit, as the client
// can show it: as a request for input, as the error of versions with sessions, or as
// text for a model or a person.
func (h *Handler) askConsent(c *call) {
	capabilities, round := c.Capabilities, 0
	if c.Message.Method == wire.MethodInitialize {
		capabilities = &c.Params.Capabilities
	}
	if c.told != nil {
		round = c.told.Round
	}
	_, mayAsk := c.Params.Target(c.Message.Method)
	var answer *wire.Message
	switch {
	case c.Stateless && mayAsk && capabilities.URL() && round < consentRounds:
		answer = h.consentInput(c, round)
	case !c.Stateless && capabilities.URL():
		answer = wire.Refuse(c.Message.ID, wire.CodePage, h.consentText(c), enforce.Data{
			Reason: enforce.ReasonLogin, Page: c.asks.URL, Elicitations: []enforce.Elicitation{h.consentPage(c)},
		})
	case c.Message.Method == wire.MethodToolsCall && c.Params.Task == nil:
		answer = enforce.ToolError(c.Call, h.consentText(c))
	default:
		answer = wire.Refuse(c.Message.ID, wire.CodeInternal, h.consentText(c), enforce.Data{Reason: enforce.ReasonLogin, Page: c.asks.URL})
	}
	_ = c.reply.Message(http.StatusOK, answer)
}

func (h *Handler) consentPage(c *call) enforce.Elicitation {
	return enforce.Elicitation{Mode: "url", ID: c.asks.ID, URL: c.asks.URL, Message: "Log in at the server " + h.cfg.Server + " in your browser, so that your calls can reach it in your name."}
}

func (h *Handler) consentText(c *call) string {
	return fmt.Sprintf("You have to log in at the server %s first. Open this address in a browser, then call again: %s", h.cfg.Server, c.asks.URL)
}

// consentInput has the client lead its user to the page and come back, or come back
// alone.
func (h *Handler) consentInput(c *call, round int) *wire.Message {
	state := consentState{Owner: ownerOf(h.cfg.Server, c.Caller), Expires: time.Now().Add(consentLifetime), Round: round + 1, Responses: c.Params.InputResponses}
	if c.Params.RequestState != "" {
		state.State, _ = json.Marshal(c.Params.RequestState)
	}
	sealed, err := h.cfg.Seal.Seal(sealConsent, state)
	if err != nil {
		return wire.Refuse(c.Message.ID, wire.CodeInternal, h.consentText(c), enforce.Data{Reason: enforce.ReasonLogin, Page: c.asks.URL})
	}
	requests := map[string]any{}
	if round == 0 {
		requests[consentName] = map[string]any{"method": wire.MethodElicitation, "params": h.consentPage(c)}
	}
	result, err := json.Marshal(map[string]any{"resultType": "input_required", "requestState": sealed, "inputRequests": requests}, json.Deterministic(true))
	if err != nil {
		return wire.Refuse(c.Message.ID, wire.CodeInternal, err.Error(), enforce.Data{Reason: enforce.ReasonLogin})
	}
	return &wire.Message{ID: c.Message.ID, Result: result}
}
