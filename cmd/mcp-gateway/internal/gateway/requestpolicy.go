package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// Ask also asks the PDP about each request that is allowed.
	Ask bool `yaml:"ask_requests"`
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
// policy, or ask, does not allow. In 2026-07-28, requests come in results of the type
// input_required; before that, also in errors, including those of tasks.
func (p *requestPolicy) checkResponse(m *wire.Message, ask func(*wire.Message) error) error {
	requests, err := requestsIn(m)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if !p.allowsMethod(r.Method, r.Params) {
			return fmt.Errorf("%w: %s", errRequestDenied, r.Method)
		}
	}
	if !p.Ask {
		return nil
	}
	for _, r := range requests {
		if err := ask(r); err != nil {
			return err
		}
	}
	return nil
}

// requestsIn returns the requests of the server that a response carries, in a fixed
// order.
func requestsIn(m *wire.Message) ([]*wire.Message, error) {
	if m.Error != nil {
		return requestsInError(m.Error)
	}
	var asked struct {
		Requests map[string]struct {
			Method string         `json:"method"`
			Params jsontext.Value `json:"params"`
		} `json:"inputRequests"`
		Error jsontext.Value `json:"error"`
	}
	if err := json.Unmarshal(m.Result, &asked); err != nil {
		return nil, fmt.Errorf("read the server's requests: %w", err)
	}
	requests, err := requestsInError(asked.Error)
	for _, name := range slices.Sorted(maps.Keys(asked.Requests)) {
		r := asked.Requests[name]
		requests = append(requests, &wire.Message{ID: jsontext.Value(`"in-result"`), Method: r.Method, Params: r.Params})
	}
	return requests, err
}

// requestsInError is requestsIn for the error member.
func requestsInError(e jsontext.Value) (requests []*wire.Message, err error) {
	if !wire.IsPageError(e) {
		return nil, nil
	}
	var asked struct {
		Data struct {
			Elicitations []jsontext.Value `json:"elicitations"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e, &asked); err != nil {
		return nil, fmt.Errorf("read the server's requests: %w", err)
	}
	for _, params := range asked.Data.Elicitations {
		requests = append(requests, &wire.Message{ID: jsontext.Value(`"in-error"`), Method: wire.MethodElicitation, Params: params})
	}
	return requests, nil
}

// allowsNotification reports whether a notification carries no request that the
// policy does not allow. Status notifications of tasks can carry requests. Where the
// PDP is asked about requests, it is asked when the client polls.
func (p *requestPolicy) allowsNotification(m *wire.Message) bool {
	return m.Params == nil || p.checkResponse(&wire.Message{Result: m.Params}, func(*wire.Message) error { return errRequestDenied }) == nil
}

// serverMessages filter what a server sends of its own accord.
type serverMessages struct {
	gateway *gateway
	server  string
}

func (s *serverMessages) policy() *requestPolicy {
	return s.gateway.rules.Load().requestPolicy(s.server)
}

// AllowsRequest implements [proxy.ServerMessages].
func (s *serverMessages) AllowsRequest(ctx context.Context, c *enforce.Call, m *wire.Message) bool {
	policy := s.policy()
	return policy.allowsMethod(m.Method, m.Params) && (!policy.Ask || s.gateway.gate.AllowServerRequest(ctx, c, m) == nil)
}

// AllowsNotification implements [proxy.ServerMessages].
func (s *serverMessages) AllowsNotification(c *enforce.Call, m *wire.Message) bool {
	s.gateway.tools.onNotification(c, m)
	return s.gateway.owners.AllowsNotification(c, m) && s.policy().allowsNotification(m)
}
