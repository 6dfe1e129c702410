package proxy

import (
	"cmp"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
	"github.com/policy-service/policy-service/obligations/plain"
)

// isAboutGateway reports whether a status is about the gateway's credential or
// its way to the server, and not about what the client sent.
func isAboutGateway(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired || status/100 == 3
}

func contentType(response *http.Response) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return kind
}

// statusError passes on an HTTP error that is no response of JSON-RPC. The status
// is all that some clients read: they begin a new session after 404. A server
// that answers 4xx has not carried the call out.
func (h *Handler) statusError(c *call, v *enforce.Disposition, response *http.Response, reason string) {
	h.cfg.Log.WarnContext(c.request.Context(), "the server answered with an HTTP error", "server", h.cfg.Server, "request_id", c.RequestID, "status", response.StatusCode, "reason", reason)
	refusal := statusRefusal(response.StatusCode, reason)
	m := wire.Refuse(requestID(v.Forward), refusal.Code, refusal.Message, refusal.Data)
	if response.StatusCode >= http.StatusInternalServerError {
		v.Finish(c.request.Context(), nil)
	} else if told := v.Finish(c.request.Context(), m); told != nil {
		m = told
	}
	_ = c.reply.Message(response.StatusCode, m)
}

func statusRefusal(status int, reason string) *enforce.Refusal {
	answered := strings.TrimSpace(fmt.Sprintf("the server answered %d %s", status, http.StatusText(status)))
	return &enforce.Refusal{
		Code: wire.CodeInternal, Status: status, Message: cmp.Or(reason, answered), Why: answered,
		Data: enforce.Data{Reason: enforce.ReasonUnavailable},
	}
}

// refusal returns the HTTP error that a request of the gateway got, if it says
// something of the client's session or version, or nil.
func (h *Handler) refusal(response *http.Response) *enforce.Refusal {
	status := response.StatusCode
	if status < 400 || status >= http.StatusInternalServerError || isAboutGateway(status) {
		return nil
	}
	said := readReason(response)
	refusal := statusRefusal(status, said.Message)
	refusal.Code = cmp.Or(said.Code, refusal.Code)
	refusal.Data.Versions = said.versions()
	return refusal
}

// maxReason bounds the sentence of a server's HTTP error, in runes.
const maxReason = 200

// A said is what an HTTP error says: of a JSON-RPC error or plain text.
type said struct {
	Message string         `json:"message"`
	Code    int            `json:"code"`
	Data    jsontext.Value `json:"data"`
}

// versions returns the versions that the server has, where it refuses another.
func (s said) versions() (v enforce.Versions) {
	if s.Code != wire.CodeVersion || json.Unmarshal(s.Data, &v) != nil {
		return enforce.Versions{}
	}
	return v
}

// readReason returns what an HTTP error of the class 4xx says, on one line. It returns
// zeros for any other.
func readReason(response *http.Response) (s said) {
	kind := contentType(response)
	if response.StatusCode/100 != 4 || kind != endpoint.TypeJSON && kind != "text/plain" {
		return said{}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return said{}
	}
	s.Message = string(body)
	if kind == endpoint.TypeJSON {
		s = readError(body)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(s.Message, "")), "\n")
	s.Message = plain.Cut(plain.Text(line), maxReason)
	return s
}

// maxErrorBody bounds the part of an HTTP error that is read for its reason, in
// bytes.
const maxErrorBody = 64 << 10

// readError returns a JSON-RPC error, or zeros.
func readError(body []byte) (s said) {
	m, err := wire.ParseReply(body)
	if err != nil || m.Error == nil || json.Unmarshal(m.Error, &s) != nil {
		return said{}
	}
	return s
}
