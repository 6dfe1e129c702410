package proxy

import (
	"net/http"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A session is what the gateway knows of a client of the older era. The client
// keeps it, sealed, as the id of its session: it is good for the caller that it
// was made for, after a restart and at every replica.
type session struct {
	ID           string             `json:"id"` // the server's
	Owner        owner              `json:",inline"`
	Capabilities *wire.Capabilities `json:"capabilities,omitempty"` // as of initialize
}

// An owner is the caller that something sealed is good for, at one server.
type owner struct {
	Server string `json:"server"`
	Tenant string `json:"tenant,omitzero"`
	Type   string `json:"type"` // of the caller
	Caller string `json:"caller"`
}

func ownerOf(server string, c *enforce.Caller) owner {
	return owner{server, c.Tenant, c.Subject.Type, c.Subject.ID}
}

// id returns the server's id of the session, or "" where there is none.
func (s *session) id() string {
	if s == nil {
		return ""
	}
	return s.ID
}

const sealSession = "session"

// openSession returns the session of a request, or nil where it names none. One
// that does not open or is another's is not found.
func (h *Handler) openSession(r *http.Request, caller *enforce.Caller) (*session, *endpoint.Failure) {
	sealed := r.Header.Get(endpoint.HeaderSession)
	if sealed == "" {
		return nil, nil
	}
	s := new(session)
	if err := h.cfg.Seal.Open(sealSession, sealed, s); err != nil || s.Owner != ownerOf(h.cfg.Server, caller) {
		return nil, &endpoint.Failure{Status: http.StatusNotFound, Fault: &wire.Fault{Code: wire.CodeRequest, Reason: "there is no such session"}}
	}
	return s, nil
}

// sealSession gives the client the session that the server has begun.
func (h *Handler) sealSession(id string, c *call) (string, error) {
	s := session{ID: id, Owner: ownerOf(h.cfg.Server, c.Caller)}
	if c.Message.Method == wire.MethodInitialize {
		s.Capabilities = &c.Params.Capabilities
	}
	return h.cfg.Seal.Seal(sealSession, s)
}
