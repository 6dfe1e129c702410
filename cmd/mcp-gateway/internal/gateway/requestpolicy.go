package gateway

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

var errRequestDenied = errors.New("the configuration does not allow this server request")

// A requestPolicy says which requests a server may send to its clients, such as
// elicitation, sampling, and roots.
type requestPolicy struct {
	// Requests are the methods that are allowed. Nil allows every method.
	Requests []string `yaml:"requests"`
	// Pages are the origins that URLs shown to people may have. Nil allows any.
	Pages []string `yaml:"pages"`
}

// allowsMethod reports whether the server may send a request of this method with
// these params.
func (p *requestPolicy) allowsMethod(method string, params jsontext.Value) bool {
	if p.Requests != nil && !slices.Contains(p.Requests, method) {
		return false
	}
	if method != wire.MethodElicitation {
		return true
	}
	var shown struct {
		Mode string `json:"mode"`
		URL  string `json:"url"`
	}
	if params != nil && json.Unmarshal(params, &shown) != nil {
		return false
	}
	switch shown.Mode {
	case "", "form":
		return shown.URL == "" || p.allowsURL(shown.URL)
	case "url":
		return shown.URL != "" && p.allowsURL(shown.URL)
	}
	return false // an unknown mode may show any URL
}

// allowsURL reports whether the server may show people this URL.
func (p *requestPolicy) allowsURL(page string) bool {
	if p.Pages == nil {
		return true
	}
	u, err := url.Parse(page)
	return err == nil && slices.Contains(p.Pages, u.Scheme+"://"+u.Host)
}

// checkResponse returns an error for a response that carries a request which the
// policy does not allow. In 2026-07-28, requests come in results of the type
// input_required; before that, also in errors, including those of tasks.
func (p *requestPolicy) checkResponse(m *wire.Message) error {
	if m.Error != nil {
		return p.checkError(m.Error)
	}
	var asked struct {
		Requests map[string]struct {
			Method string         `json:"method"`
			Params jsontext.Value `json:"params"`
		} `json:"inputRequests"`
		Error jsontext.Value `json:"error"`
	}
	if err := json.Unmarshal(m.Result, &asked); err != nil {
		return fmt.Errorf("read the server's requests: %w", err)
	}
	for _, r := range asked.Requests {
		if !p.allowsMethod(r.Method, r.Params) {
			return fmt.Errorf("%w: %s", errRequestDenied, r.Method)
		}
	}
	return p.checkError(asked.Error)
}

// checkError is checkResponse for the error member.
func (p *requestPolicy) checkError(e jsontext.Value) error {
	if !wire.IsPageError(e) {
		return nil
	}
	var asked struct {
		Data struct {
			Elicitations []jsontext.Value `json:"elicitations"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e, &asked); err != nil {
		return fmt.Errorf("read the server's requests: %w", err)
	}
	for _, params := range asked.Data.Elicitations {
		if !p.allowsMethod(wire.MethodElicitation, params) {
			return fmt.Errorf("%w: %s", errRequestDenied, wire.MethodElicitation)
		}
	}
	return nil
}

// allowsNotification reports whether a notification carries no request that the
// policy does not allow. Status notifications of tasks can carry requests.
func (p *requestPolicy) allowsNotification(m *wire.Message) bool {
	return m.Params == nil || p.checkResponse(&wire.Message{Result: m.Params}) == nil
}

// serverMessages filter what a server sends of its own accord.
type serverMessages struct {
	gateway *gateway
	policy  *requestPolicy
}

// AllowsRequest implements [proxy.ServerMessages].
func (s *serverMessages) AllowsRequest(method string, params jsontext.Value) bool {
	return s.policy.allowsMethod(method, params)
}

// AllowsNotification implements [proxy.ServerMessages].
func (s *serverMessages) AllowsNotification(c *enforce.Call, m *wire.Message) bool {
	s.gateway.tools.onNotification(c, m)
	return s.gateway.owners.AllowsNotification(c, m) && s.policy.allowsNotification(m)
}
