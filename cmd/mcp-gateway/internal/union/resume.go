package union

import (
	"net/http"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
)

// splitEvent returns the server of an event, and the id that the server's endpoint
// gave it. That endpoint has sealed it: it is good for nothing else.
func splitEvent(id string) (server, inner string, ok bool) { return strings.Cut(id, ":") }

// resume passes on the rest of the stream of a call. The session at the server must
// be the one in which the call was made.
func (h *Handler) resume(w http.ResponseWriter, c *call, s *Server, event string) {
	inner := c.session.at(s)
	if inner == nil {
		http.Error(w, "the stream cannot be resumed: the session at the server has ended", http.StatusBadRequest)
		return
	}
	header := http.Header{"Accept": {endpoint.TypeEvents}, endpoint.HeaderLast: {event}}
	inner.mark(header)
	response, err := s.exchange(c.request.Context(), c.caller, http.MethodGet, header, nil)
	if err != nil {
		http.Error(w, "the server did not answer", http.StatusBadGateway)
		return
	}
	defer response.close()
	h.relay(c, s, response)
}
