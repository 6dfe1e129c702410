package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// A pythonServer answers as a FastMCP server of the official Python SDK 1.29 does:
// mcp/server/streamable_http.py and streamable_http_manager.py of
// github.com/modelcontextprotocol/python-sdk, with an event store or, in the JSON mode,
// without. The event store of the SDK's examples mixes the streams of sessions whose
// requests have the same id. This one does not.
type pythonServer struct {
	tools map[string]fieldTool
	json  bool // answers are JSON, and progress is dropped

	mu       sync.Mutex
	sessions map[string]*pythonSession
	events   []pythonEvent
}

// A pythonSession has the open streams, which are named for the id of their request.
type pythonSession struct {
	id      string
	ended   bool
	streams map[string]chan pythonEvent
}

// A pythonEvent without a message primes a stream.
type pythonEvent struct {
	id      string
	session *pythonSession
	stream  string
	message jsontext.Value
}

type pythonMessage struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitempty"`
	Method  string         `json:"method,omitempty"`
	Params  any            `json:"params,omitempty"`
	Result  any            `json:"result,omitempty"`
	Error   any            `json:"error,omitempty"`
}

// A pythonRequest is a request, or a notification or response, of which no more is read.
type pythonRequest struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Name            string `json:"name"`
		Arguments       struct {
			N int `json:"n"`
		} `json:"arguments"`
		Meta struct {
			ProgressToken jsontext.Value `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

const (
	pythonGetStream    = "_GET_stream"
	pythonInvalid      = -32600
	pythonPing         = time.Second  // sse-starlette has 15 s
	pythonPrimes       = "2025-11-25" // the first version whose streams are primed
	pythonUnacceptable = "Not Acceptable: Client must accept both application/json and text/event-stream"

	pythonUnacceptableJSON = "Not Acceptable: Client must accept application/json"
)

var pythonVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// pythonRefused is an error that is not about a message: the SDK 1 gives it this id.
func pythonRefused(code int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"server-error","error":{"code":%d,"message":%q}}`, code, message)
}

func newPythonServer(tools map[string]fieldTool, json bool) http.Handler {
	s := &pythonServer{tools: tools, json: json, sessions: make(map[string]*pythonSession)}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s)
	return mux
}

func (s *pythonServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session, ok := s.session(r.Header.Get("Mcp-Session-Id"))
	refuse := func(status int, message string) {
		pythonAnswer(w, session, status, pythonRefused(pythonInvalid, message))
	}
	switch {
	case !ok:
		refuse(http.StatusNotFound, "Session not found")
	case session.ended:
		refuse(http.StatusNotFound, "Not Found: Session has been terminated")
	case r.Method == http.MethodPost:
		s.post(w, r, session, refuse)
	case r.Method == http.MethodGet:
		s.get(w, r, session, refuse)
	case r.Method == http.MethodDelete:
		if s.fits(r, session, refuse) {
			s.end(session)
			pythonAnswer(w, session, http.StatusOK, "")
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
	}
}

// session returns the session of that id, and begins one where there is no id,
// whatever the request is.
func (s *pythonServer) session(id string) (*pythonSession, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		session := &pythonSession{id: strings.ReplaceAll(uuid.NewString(), "-", ""), streams: make(map[string]chan pythonEvent)}
		s.sessions[session.id] = session
		return session, true
	}
	session, ok := s.sessions[id]
	return session, ok
}

func (s *pythonServer) end(session *pythonSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session.ended = true
	for name, stream := range session.streams {
		close(stream)
		delete(session.streams, name)
	}
}

// fits refuses a request without a session or of another version.
func (s *pythonServer) fits(r *http.Request, session *pythonSession, refuse func(int, string)) bool {
	version := cmp.Or(r.Header.Get("Mcp-Protocol-Version"), "2025-03-26")
	switch {
	case r.Header.Get("Mcp-Session-Id") == "":
		refuse(http.StatusBadRequest, "Bad Request: Missing session ID")
	case !slices.Contains(pythonVersions, version):
		refuse(http.StatusBadRequest, fmt.Sprintf("Bad Request: Unsupported protocol version: %s. Supported versions: %s", version, strings.Join(pythonVersions, ", ")))
	default:
		return true
	}
	return false
}

func (s *pythonServer) post(w http.ResponseWriter, r *http.Request, session *pythonSession, refuse func(int, string)) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "Invalid Content-Type header")
		return
	}
	if unacceptable := s.unacceptable(r.Header.Get("Accept")); unacceptable != "" {
		refuse(http.StatusNotAcceptable, unacceptable)
		return
	}
	m := new(pythonRequest)
	if err := json.UnmarshalRead(r.Body, m); err != nil {
		pythonAnswer(w, session, http.StatusBadRequest, pythonRefused(-32700, "Parse error: "+err.Error()))
		return
	}
	version := cmp.Or(r.Header.Get("Mcp-Protocol-Version"), "2025-03-26")
	if m.Method == "initialize" {
		version = m.Params.ProtocolVersion
	} else if !s.fits(r, session, refuse) {
		return
	}
	if m.Method == "" || m.ID == nil {
		pythonAnswer(w, session, http.StatusAccepted, "")
		return
	}
	stream := strings.Trim(string(m.ID), `"`)
	if s.json {
		events := s.open(session, stream)
		go s.carryOut(session, stream, m)
		if e, ok := <-events; ok {
			s.close(session, stream, events)
			pythonAnswer(w, session, http.StatusOK, string(e.message))
		}
		return
	}
	pythonStream(w, session)
	if version >= pythonPrimes {
		pythonWrite(w, s.store(session, stream, nil))
	}
	events := s.open(session, stream)
	go s.carryOut(session, stream, m)
	s.pass(r.Context(), w, session, stream, events, true)
}

// unacceptable says what a client has to accept, if it does not.
func (s *pythonServer) unacceptable(accept string) string {
	takesJSON, takesEvents := strings.Contains(accept, "application/json"), strings.Contains(accept, "text/event-stream")
	switch {
	case s.json && !takesJSON:
		return pythonUnacceptableJSON
	case !s.json && (!takesJSON || !takesEvents):
		return pythonUnacceptable
	}
	return ""
}

// carryOut answers a request on its stream, also if nobody reads it any more.
func (s *pythonServer) carryOut(session *pythonSession, stream string, m *pythonRequest) {
	answer := pythonMessage{Version: "2.0", ID: m.ID}
	switch m.Method {
	case "initialize":
		version := m.Params.ProtocolVersion
		if !slices.Contains(pythonVersions, version) {
			version = pythonVersions[len(pythonVersions)-1]
		}
		answer.Result = map[string]any{
			"protocolVersion": version, "serverInfo": map[string]any{"name": "field", "version": "1.29.0"},
			"capabilities": map[string]any{"experimental": map[string]any{}, "tools": map[string]any{"listChanged": false}},
		}
	case "ping":
		answer.Result = map[string]any{}
	case "tools/list":
		answer.Result = map[string]any{"tools": pythonTools(s.tools)}
	case "tools/call":
		token := m.Params.Meta.ProgressToken
		answer.Result = s.call(m.Params.Name, m.Params.Arguments.N, func(i int) {
			if token != nil && !s.json {
				s.route(session, stream, pythonMessage{Version: "2.0", Method: "notifications/progress", Params: map[string]any{"progressToken": token, "progress": i}})
			}
		})
	default:
		answer.Error = map[string]any{"code": -32602, "message": "Invalid request parameters", "data": ""}
	}
	s.route(session, stream, answer)
}

// call runs a tool. That there is none is a result.
func (s *pythonServer) call(name string, n int, progress func(int)) any {
	tool, ok := s.tools[name]
	if !ok {
		return map[string]any{"content": []any{map[string]any{"type": "text", "text": "Unknown tool: " + name}}, "isError": true}
	}
	text, structured := tool.run(n, progress)
	result := map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": false}
	if structured != nil {
		result["structuredContent"] = structured
	}
	return result
}

func pythonTools(tools map[string]fieldTool) (list []any) {
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		list = append(list, map[string]any{"name": name, "description": tools[name].description, "inputSchema": jsontext.Value(fieldSchema)})
	}
	return list
}

func (s *pythonServer) get(w http.ResponseWriter, r *http.Request, session *pythonSession, refuse func(int, string)) {
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		refuse(http.StatusNotAcceptable, "Not Acceptable: Client must accept text/event-stream")
		return
	}
	if !s.fits(r, session, refuse) {
		return
	}
	if last := r.Header.Get("Last-Event-Id"); last != "" && !s.json {
		s.replay(w, r, session, last)
		return
	}
	events := s.open(session, pythonGetStream)
	if events == nil {
		refuse(http.StatusConflict, "Conflict: Only one SSE stream is allowed per session")
		return
	}
	pythonStream(w, session)
	s.pass(r.Context(), w, session, pythonGetStream, events, false)
}

// replay sends what a stream had after an event, and then what comes. It does not end
// with the response, unless the stream has another reader or there is no such event.
func (s *pythonServer) replay(w http.ResponseWriter, r *http.Request, session *pythonSession, last string) {
	pythonStream(w, session)
	s.mu.Lock()
	at := slices.IndexFunc(s.events, func(e pythonEvent) bool { return e.id == last && e.session == session })
	var missed []pythonEvent
	stream := ""
	if at >= 0 {
		stream = s.events[at].stream
		for _, e := range s.events[at+1:] {
			if e.session == session && e.stream == stream && e.message != nil {
				missed = append(missed, e)
			}
		}
	}
	events := s.openLocked(session, stream)
	s.mu.Unlock()
	for _, e := range missed {
		pythonWrite(w, &e)
	}
	if stream == "" || events == nil {
		return
	}
	if cmp.Or(r.Header.Get("Mcp-Protocol-Version"), "2025-03-26") >= pythonPrimes {
		pythonWrite(w, s.store(session, stream, nil))
	}
	s.pass(r.Context(), w, session, stream, events, false)
}

func (s *pythonServer) open(session *pythonSession, stream string) chan pythonEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(session, stream)
}

// openLocked returns nil where the stream is open.
func (s *pythonServer) openLocked(session *pythonSession, stream string) chan pythonEvent {
	if session.ended || session.streams[stream] != nil {
		return nil
	}
	events := make(chan pythonEvent, 100)
	session.streams[stream] = events
	return events
}

func (s *pythonServer) close(session *pythonSession, stream string, events chan pythonEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session.streams[stream] == events {
		delete(session.streams, stream)
	}
}

// store keeps an event under a new id.
func (s *pythonServer) store(session *pythonSession, stream string, message jsontext.Value) *pythonEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storeLocked(session, stream, message)
}

func (s *pythonServer) storeLocked(session *pythonSession, stream string, message jsontext.Value) *pythonEvent {
	e := pythonEvent{uuid.NewString(), session, stream, message}
	s.events = append(s.events, e)
	return &e
}

// route stores a message, and gives it to the stream if that is open.
func (s *pythonServer) route(session *pythonSession, stream string, m pythonMessage) {
	text, err := json.Marshal(m, json.Deterministic(true))
	check(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &pythonEvent{message: text}
	if !s.json {
		e = s.storeLocked(session, stream, text) // once: a replay has it, or the stream
	}
	if events := session.streams[stream]; events != nil {
		events <- *e
	}
}

// pass writes the events of a stream, with comments meanwhile, until the response.
func (s *pythonServer) pass(ctx context.Context, w http.ResponseWriter, session *pythonSession, stream string, events chan pythonEvent, ends bool) {
	defer s.close(session, stream, events)
	ping := time.NewTicker(pythonPing)
	defer ping.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			pythonWrite(w, &e)
			if ends && !strings.Contains(string(e.message), `"method"`) {
				return
			}
		case now := <-ping.C:
			fmt.Fprintf(w, ": ping - %s\r\n\r\n", now.UTC().Format("2006-01-02 15:04:05.000000+00:00"))
			_ = http.NewResponseController(w).Flush()
		case <-ctx.Done():
			return
		}
	}
}

func pythonWrite(w io.Writer, e *pythonEvent) {
	switch {
	case e == nil:
		return
	case e.message == nil:
		fmt.Fprintf(w, "id: %s\r\ndata: \r\n\r\n", e.id)
	case e.id == "":
		fmt.Fprintf(w, "event: message\r\ndata: %s\r\n\r\n", e.message)
	default:
		fmt.Fprintf(w, "id: %s\r\nevent: message\r\ndata: %s\r\n\r\n", e.id, e.message)
	}
	if w, ok := w.(http.ResponseWriter); ok {
		_ = http.NewResponseController(w).Flush()
	}
}

// pythonStream begins a stream at once, before there is anything to say.
func pythonStream(w http.ResponseWriter, session *pythonSession) {
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	w.Header().Set("Connection", "keep-alive")
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.Header().Set("Mcp-Session-Id", session.id)
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
}

func pythonAnswer(w http.ResponseWriter, session *pythonSession, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	if session != nil {
		w.Header().Set("Mcp-Session-Id", session.id)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
