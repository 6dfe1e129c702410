package proxy

import (
	"errors"
	"net/http"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// ErrNoToken means that the server needs a token of the caller, who has none. Clients
// get its text.
var ErrNoToken = errors.New("the server needs a token of the caller, and the caller has none")

// do sends a request to the server with the credential for the caller. A server that
// answers 401 has not carried the request out, so it is sent once more if another
// token can be had.
func (h *Handler) do(c *call, r *http.Request) (*http.Response, error) {
	if h.cfg.Transport != nil {
		return h.cfg.Transport(c.Caller).RoundTrip(r)
	}
	if h.cfg.Credential == nil {
		return h.upstream.Do(r)
	}
	token, err := h.authorize(c, r)
	if err != nil {
		return nil, err
	}
	response, err := h.upstream.Do(r)
	if err != nil || response.StatusCode != http.StatusUnauthorized || !h.cfg.Credential.Drop(c.Caller, token) {
		return response, err
	}
	response.Body.Close()
	if r.GetBody != nil {
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	if _, err := h.authorize(c, r); err != nil {
		return nil, err
	}
	return h.upstream.Do(r)
}

// authorize adds the token to a request. Its error is a [enforce.Refusal], unless the
// caller has gone.
func (h *Handler) authorize(c *call, r *http.Request) (token string, err error) {
	token, err = h.cfg.Credential.Token(r.Context(), c.Caller)
	var refused *enforce.Refusal
	switch {
	case err == nil:
		r.Header.Set("Authorization", "Bearer "+token)
		return token, nil
	case r.Context().Err() != nil || errors.As(err, &refused):
		return "", err
	}
	h.cfg.Log.WarnContext(r.Context(), "no credential for the server", "server", h.cfg.Server, "request_id", c.RequestID, "error", err)
	message := "the gateway has no credential for the server, and did not call it"
	if errors.Is(err, ErrNoToken) {
		message = ErrNoToken.Error()
	}
	return "", &enforce.Refusal{Code: wire.CodeInternal, Status: http.StatusOK, Message: message, Data: enforce.Data{Reason: enforce.ReasonCredential}, Why: err.Error()}
}

// refuse answers a call that was not sent.
func (h *Handler) refuse(c *call, v *enforce.Disposition, refused *enforce.Refusal) {
	m := wire.Refuse(requestID(v.Forward), refused.Code, refused.Message, refused.Data)
	v.Finish(c.request.Context(), m)
	if !v.Forward.IsRequest() {
		c.reply.W.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = c.reply.Message(refused.Status, m)
}
