package proxy

import (
	"errors"
	"net/http"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// Errors of a [Credential]. Clients get the text of ErrNoToken.
var (
	// ErrNoToken means that the server needs a token of the caller, who has none.
	ErrNoToken = errors.New("the server needs a token of the caller, and the caller has none")
	// ErrScopes means that no token has only the scopes that the permit allows.
	ErrScopes = errors.New("the token for the server cannot be narrowed to the scopes of the permit")
)

// do sends a request to the server with the credential for the caller. A server that
// answers 401 has not carried the request out, so it is sent once more if another
// token can be had.
func (h *Handler) do(c *call, r *http.Request) (*http.Response, error) {
	if h.cfg.Credential == nil && len(c.Scopes) > 0 {
		return nil, notNarrowed(ErrScopes)
	}
	if h.cfg.Transport != nil {
		return h.cfg.Transport(c.Caller).RoundTrip(r)
	}
	if h.cfg.Credential == nil {
		return h.upstream.Do(r)
	}
	for again := false; ; again = true {
		token, err := h.authorize(c, r)
		if err != nil {
			return nil, err
		}
		response, err := h.upstream.Do(r)
		if err != nil || response.StatusCode != http.StatusUnauthorized || !h.cfg.Credential.Drop(r.Context(), c.Caller, c.Scopes, token, again) {
			return response, err
		}
		response.Body.Close()
		if r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// authorize adds the token to a request. Its error is a [enforce.Refusal], unless the
// caller has gone.
func (h *Handler) authorize(c *call, r *http.Request) (token string, err error) {
	token, err = h.cfg.Credential.Token(r.Context(), c.Caller, c.Scopes)
	switch {
	case err == nil:
		r.Header.Set("Authorization", "Bearer "+token)
		return token, nil
	case r.Context().Err() != nil:
		return "", err
	case errors.As(err, &c.asks):
		return "", &enforce.Refusal{Code: wire.CodeInternal, Status: http.StatusOK, Message: c.asks.Error(), Data: enforce.Data{Reason: enforce.ReasonLogin}}
	}
	h.cfg.Log.WarnContext(r.Context(), "no credential for the server", "server", h.cfg.Server, "request_id", c.RequestID, "error", err)
	if errors.Is(err, ErrScopes) {
		return "", notNarrowed(err)
	}
	message := "the gateway has no credential for the server, and did not call it"
	if errors.Is(err, ErrNoToken) {
		message = ErrNoToken.Error()
	}
	return "", &enforce.Refusal{Code: wire.CodeInternal, Status: http.StatusOK, Message: message, Data: enforce.Data{Reason: enforce.ReasonCredential}, Why: err.Error()}
}

// notNarrowed refuses a call whose permit holds for fewer scopes than the gateway can
// limit the call to.
func notNarrowed(err error) *enforce.Refusal {
	return &enforce.Refusal{
		Code: wire.CodeInternal, Status: http.StatusOK, Message: "an obligation of the permit could not be carried out, and the server was not called",
		Data: enforce.Data{Reason: enforce.ReasonObligation}, Why: err.Error(),
	}
}

// refuse answers a call that was not sent.
func (h *Handler) refuse(c *call, v *enforce.Disposition, refused *enforce.Refusal) {
	m := wire.Refuse(requestID(v.Forward), refused.Code, refused.Message, refused.Data)
	v.Finish(c.request.Context(), m)
	if refused.Data.Reason == enforce.ReasonLogin && v.Forward.IsRequest() {
		h.askConsent(c)
		return
	}
	if !v.Forward.IsRequest() {
		c.reply.W.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = c.reply.Message(refused.Status, m)
}
