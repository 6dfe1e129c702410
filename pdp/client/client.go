// Package client calls a PDP over HTTP on behalf of a PEP: for one decision ([Client.Evaluate]),
// for a batch ([Client.Evaluations]), in the tenant, actor, action, resource format
// ([Client.Authorize]), and for metadata ([Client.Metadata]).
//
// The package fails closed. It returns an answer only if the PDP sent it completely: status 200,
// application/json, a body that all parsers read alike, a boolean decision, and for a batch every
// decision that is due. Everything else is an error without an answer:
//
//	decision, err := pdp.Evaluate(ctx, request)
//	if err != nil || !decision.Decision {
//		return errForbidden
//	}
//
// A decision may have obligations. A PEP that cannot meet all of them must treat the decision as a
// denial (AuthZEN Obligations Profile, draft 1, "Non-Compliance and Partial Compliance").
//
// A denial may have an access request: an approval can lift it. [Submission], [Client.Submit],
// [Client.Await] and [Client.Reevaluate] lead from the denial to the same request with an approval.
// Access remains denied until that request is permitted.
//
// A denial may have a capability request: a capability can lift it. See [Client.RequestCapability].
//
// The package never follows a redirect. It repeats a request only if the PDP asks for it.
package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Config configures a [Client]. The zero Config works.
type Config struct {
	// Timeout bounds a call, from the connection to the last byte of the answer. 0 means
	// [DefaultTimeout]. The context may end the call sooner.
	Timeout time.Duration
	// MaxResponseBytes bounds the body of an answer. 0 means [DefaultMaxResponseBytes].
	MaxResponseBytes int64
	// Bearer, if not empty, is sent as Authorization: Bearer, except to the metadata endpoint.
	Bearer string
	// ServiceBearer, if not empty, replaces Bearer for an Access Request Service of another origin,
	// which the PDP's metadata name. Without it that service gets no credential.
	ServiceBearer string
	// ServiceHeader, if not nil, may add headers to each request to that service, such as a
	// credential that changes. An error ends the call.
	ServiceHeader func(ctx context.Context, header http.Header) error
	// Header, if not nil, may add headers to each request to the PDP, such as credentials that
	// change or a trace context. An error ends the call.
	Header func(ctx context.Context, header http.Header) error
	// RequestID, if not nil, returns the X-Request-ID of each request. An answer with another
	// X-Request-ID belongs to another request and is an error.
	RequestID func(ctx context.Context) string
	// Answered, if not nil, is called with the header of each complete answer. Its Decision-ID
	// identifies the entry in the PDP's log.
	Answered func(ctx context.Context, header http.Header)
	// Transport sends the requests, with its TLS configuration, client certificates and tracing.
	// nil means a transport of the Client's own.
	Transport http.RoundTripper
}

// Defaults of a [Config].
const (
	DefaultTimeout          = time.Second
	DefaultMaxResponseBytes = 1 << 20
)

// A Client calls one PDP. It is safe for concurrent use.
type Client struct {
	base    string
	cfg     Config
	http    *http.Client
	service *service
}

// New returns a Client of the PDP at baseURL. For a tenant, baseURL has the tenant's path:
// https://pdp.example.com/tenants/acme. The APIs are at the default paths below it (AuthZEN 1.0,
// "HTTPS JSON Binding").
func New(baseURL string, cfg Config) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxResponseBytes == 0 {
		cfg.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if cfg.Transport == nil {
		cfg.Transport = transport()
	}
	return &Client{base: baseURL, cfg: cfg, service: new(service), http: &http.Client{
		Transport:     cfg.Transport,
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// transport returns a transport with enough idle connections for a busy PEP. It disables
// compression, so that the limit on a body bounds the bytes read.
func transport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

// A StatusError is an answer with a status other than 200. It is not a decision.
type StatusError struct {
	Status  int    // HTTP status
	Message string // error message of the PDP, or ""
	Type    string // of the problem document (RFC 9457), or ""
	// DecisionID identifies the entry in the PDP's log, or is "".
	DecisionID string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the PDP answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Evaluate requests one decision.
func (c *Client) Evaluate(ctx context.Context, req *authzen.EvaluationRequest) (*authzen.Decision, error) {
	var answer decision
	if err := c.post(ctx, authzen.PathEvaluation, req, &answer); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	return &answer.Decision, nil
}

// Evaluations requests a batch of decisions. The answer to a request with items has their decisions
// in the same order, up to the item at which the semantic ends the batch. The answer to a request
// without items is one Decision.
func (c *Client) Evaluations(ctx context.Context, req *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
	answer := decisions{items: len(req.Evaluations), semantic: req.Options.Semantic}
	if err := c.post(ctx, authzen.PathEvaluations, req, &answer); err != nil {
		return nil, fmt.Errorf("evaluations: %w", err)
	}
	return &answer.EvaluationsResponse, nil
}

// Authorize requests one decision in the tenant, actor, action, resource format. An unknown
// obligation in the answer is an error.
func (c *Client) Authorize(ctx context.Context, req *authzen.AuthorizeRequest) (*authzen.AuthorizeResponse, error) {
	var answer authorization
	if err := c.post(ctx, authzen.PathAuthorize, req, &answer); err != nil {
		return nil, fmt.Errorf("authorize: %w", err)
	}
	return &answer.AuthorizeResponse, nil
}

// Metadata returns the metadata of the PDP. It fails if they do not name the base URL exactly
// (AuthZEN 1.0, "Metadata Validation").
func (c *Client) Metadata(ctx context.Context) (*authzen.Metadata, error) {
	answer := metadata{identifier: c.base}
	if err := c.get(ctx, &answer); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return &answer.Metadata, nil
}

func (c *Client) post(ctx context.Context, path string, req, answer any) error {
	r, err := c.request(ctx, http.MethodPost, strings.TrimSuffix(c.base, "/")+path, req)
	if err != nil {
		return err
	}
	_, err = c.do(r, answer, http.StatusOK)
	return err
}

// request returns a request with the Client's credential and an optional JSON body.
func (c *Client) request(ctx context.Context, method, url string, body any) (*http.Request, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	bearer := c.cfg.Bearer
	if !c.isOwn(r.URL) {
		bearer = c.cfg.ServiceBearer
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	return r, nil
}

func (c *Client) get(ctx context.Context, answer any) error {
	url, err := metadataURL(c.base)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	_, err = c.do(r, answer, http.StatusOK)
	return err
}

// do sends a request. It reads a complete and valid answer with one of the statuses, and returns
// its header.
func (c *Client) do(r *http.Request, answer any, statuses ...int) (http.Header, error) {
	if err := c.prepare(r); err != nil {
		return nil, err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := c.read(response)
	if !slices.Contains(statuses, response.StatusCode) {
		return nil, statusError(response, body)
	}
	if err != nil {
		return nil, err
	}
	if err := answers(response, r); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if c.cfg.Answered != nil {
		c.cfg.Answered(r.Context(), response.Header)
	}
	return response.Header, nil
}

func (c *Client) prepare(r *http.Request) error {
	r.Header.Set("Accept", "application/json")
	if c.cfg.RequestID != nil {
		r.Header.Set(headerRequestID, c.cfg.RequestID(r.Context()))
	}
	add := c.cfg.Header
	if !c.isOwn(r.URL) {
		add = c.cfg.ServiceHeader
	}
	if add == nil {
		return nil
	}
	if err := add(r.Context(), r.Header); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return nil
}

const headerRequestID = "X-Request-ID"

var errTooLarge = errors.New("the answer is larger than MaxResponseBytes")

func (c *Client) read(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, c.cfg.MaxResponseBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if int64(len(body)) > c.cfg.MaxResponseBytes {
		return nil, errTooLarge
	}
	return body, nil
}

// answers checks that the response is JSON and belongs to this request.
func answers(response *http.Response, r *http.Request) error {
	sent := response.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(sent); err != nil || kind != "application/json" {
		return fmt.Errorf("the answer is %q, not application/json", sent)
	}
	asked, got := r.Header.Get(headerRequestID), response.Header.Get(headerRequestID)
	if asked != "" && got != "" && asked != got {
		return fmt.Errorf("the answer is to request %q, not %q", got, asked)
	}
	return nil
}

// statusError returns the error of an answer, with what its body says if that can be read.
func statusError(response *http.Response, body []byte) *StatusError {
	e := &StatusError{Status: response.StatusCode, DecisionID: response.Header.Get("Decision-ID")}
	var failure struct {
		authzen.Problem
		Error authzen.Error `json:"error"`
	}
	if err := json.Unmarshal(body, &failure); err == nil {
		e.Message, e.Type = cmp.Or(failure.Error.Message, failure.Detail), failure.Type
	}
	return e
}
