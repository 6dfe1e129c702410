package union

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
)

// ofSession begins the ids of events that are not of a call.
const ofSession = "*"

// eventOf returns the id of an event of a server at the union. It has the session at
// the server, so that another process can resume the stream of a call.
func eventOf(server, event, session string) string {
	return server + ":" + event + ":" + session
}

// splitEvent returns what an id of an event has. The endpoint of the server has
// sealed the event and the session: they are good for nothing else.
func splitEvent(id string) (isOfSession bool, server, event, session string, ok bool) {
	id, isOfSession = strings.CutPrefix(id, ofSession)
	server, rest, ok := strings.Cut(id, ":")
	event, session, found := strings.Cut(rest, ":")
	return isOfSession, server, event, session, ok && found
}

// A mark is an event of a session that the client was sent, with the last events of
// all servers by then.
type mark struct {
	id   string
	last map[string]string // by server
}

// maxMarks bounds the events from which a stream of a session is resumed without
// loss.
const maxMarks = 64

// mark returns the id of an event of a server, and notes it.
func (s *session) mark(server, event string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := mark{ofSession + eventOf(server, event, ""), map[string]string{}}
	if len(s.marks) > 0 {
		maps.Copy(m.last, s.marks[len(s.marks)-1].last)
	}
	m.last[server] = event
	if s.marks = append(s.marks, m); len(s.marks) > maxMarks {
		s.marks = slices.Clone(s.marks[1:])
	}
	return m.id
}

// marked returns the last events that a client had which had this one. Without a
// mark only that of its own server is known.
func (s *session) marked(id, server, event string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.marks {
		if m.id == id {
			return maps.Clone(m.last)
		}
	}
	if event == "" {
		return nil
	}
	return map[string]string{server: event}
}

// resume passes on the rest of the stream of a call, in the session at the server in
// which the call was made.
func (h *Handler) resume(w http.ResponseWriter, c *call, s *Server, event, session string) {
	header := http.Header{"Accept": {endpoint.TypeEvents}, endpoint.HeaderLast: {event}}
	(&innerSession{id: session, version: c.request.Header.Get(endpoint.HeaderVersion)}).mark(header)
	response, err := s.exchange(c.request.Context(), c.caller, http.MethodGet, header, nil)
	if err != nil {
		panic(http.ErrAbortHandler) // as proxy.Handler does: the client tries again
	}
	defer response.close()
	if response.status == http.StatusBadGateway {
		panic(http.ErrAbortHandler)
	}
	if !response.isEvents() {
		http.Error(w, "the stream cannot be resumed", http.StatusBadRequest)
		return
	}
	h.relay(c, s, response, session)
}
