package proxy

import (
	"cmp"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

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
	reason, code := readReason(response)
	refusal := statusRefusal(status, reason)
	refusal.Code = cmp.Or(code, refusal.Code)
	return refusal
}

// maxReason bounds the sentence of a server's HTTP error, in runes.
const maxReason = 200

// readReason returns what an HTTP error of the class 4xx says, on one line, and its
// code: of a JSON-RPC error or plain text. It returns zeros for any other.
func readReason(response *http.Response) (reason string, code int) {
	kind := contentType(response)
	if response.StatusCode/100 != 4 || kind != endpoint.TypeJSON && kind != "text/plain" {
		return "", 0
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return "", 0
	}
	text := string(body)
	if kind == endpoint.TypeJSON {
		text, code = readError(body)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(text, "")), "\n")
	return plain.Cut(plain.Text(line), maxReason), code
}

// maxErrorBody bounds the part of an HTTP error that is read for its reason, in
// bytes.
const maxErrorBody = 64 << 10

// readError returns the message and the code of a JSON-RPC error, or zeros.
func readError(body []byte) (message string, code int) {
	var said struct {
		Message string `json:"message"`
		Code    int    `json:"code"`
	}
	m, err := wire.ParseReply(body)
	if err != nil || m.Error == nil || json.Unmarshal(m.Error, &said) != nil {
		return "", 0
	}
	return said.Message, said.Code
}
