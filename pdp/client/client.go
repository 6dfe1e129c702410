// Package client is what a PEP imports to ask a PDP over HTTP: one decision
// ([Client.Evaluate]), a batch ([Client.Evaluations]), the tenant, actor,
// action, resource shape of the same question ([Client.Authorize]), and what
// the PDP says of itself ([Client.Metadata]).
//
// The law it keeps: it fails closed. An answer is returned only when the PDP
// gave it in full: status 200, application/json, a body that two parsers could
// not read differently, a decision that is a JSON boolean, a batch with a
// decision for every item that was due one. Everything else is an error and no
// answer:
//
//	decision, err := pdp.Evaluate(ctx, request)
//	if err != nil || !decision.Decision {
//		return errForbidden
//	}
//
// A decision may come with obligations. A PEP that cannot meet every one of
// them must treat the decision as a denial (AuthZEN Obligations Profile, draft
// 1, "Non-Compliance and Partial Compliance").
//
// A denial may come with an access request: a person can lift it. [Submission],
// [Client.Submit], [Client.Await] and [Client.Reevaluate] are the way from there
// to the same request with an approval. A denial stays one until that is permitted.
//
// It never follows a redirect, and never repeats a request but where the PDP says
// to: a decision is asked for once, where the PEP was told to ask.
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

// A Config says how to ask. The zero Config works.
type Config struct {
	// Timeout bounds a call, from the connection to the last byte of the
	// answer. 0 is [DefaultTimeout]. The context may end it sooner.
	Timeout time.Duration
	// MaxResponseBytes bounds the body of an answer. 0 is [DefaultMaxResponseBytes].
	MaxResponseBytes int64
	// Bearer, if not empty, is sent as Authorization: Bearer. Metadata is
	// asked for without it.
	Bearer string
	// ServiceBearer, if not empty, is sent instead of Bearer to an Access Request
	// Service of another origin, which the PDP's metadata name. Without it that
	// service gets no credential: those of the PDP stay with the PDP.
	ServiceBearer string
	// Header, if not nil, adds to the header of each request to the PDP:
	// credentials that change, a trace context. An error ends the call.
	Header func(ctx context.Context, header http.Header) error
	// RequestID, if not nil, makes the X-Request-ID of each request. An answer
	// that carries another one is the answer to another question and an error.
	RequestID func(ctx context.Context) string
	// Answered, if not nil, is given the header of each whole answer: its
	// Decision-ID leads to the entry in the PDP's log.
	Answered func(ctx context.Context, header http.Header)
	// Transport carries the requests: TLS configuration, client certificates,
	// tracing. Nil is a transport of the Client's own.
	Transport http.RoundTripper
}

// Defaults of a [Config].
const (
	DefaultTimeout          = time.Second
	DefaultMaxResponseBytes = 1 << 20
)

// A Client asks one PDP. It is safe for concurrent use.
type Client struct {
	base    string
	cfg     Config
	http    *http.Client
	service *service
}

// New returns a Client of the PDP at baseURL, with the tenant's path if there
// is one: https://pdp.example.com/tenants/acme. APIs are at the default paths
// below it (AuthZEN 1.0, "HTTPS JSON Binding").
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

// transport keeps as many connections to the one PDP as a busy PEP uses, and
// takes no compressed bodies, so that the limit on a body is the limit on what
// is read from it.
func transport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

// A StatusError is an answer with a status that is not 200. It is no decision,
// whatever the status.
type StatusError struct {
	Status  int    // HTTP status
	Message string // of the PDP, or "" when it gave none
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the PDP answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Evaluate asks for one decision.
func (c *Client) Evaluate(ctx context.Context, req *authzen.EvaluationRequest) (*authzen.Decision, error) {
	var answer decision
	if err := c.post(ctx, authzen.PathEvaluation, req, &answer); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	return &answer.Decision, nil
}

// Evaluations asks for a batch of decisions. The answer to a request with
// items has a decision for each of them, in their order, up to the one at
// which the semantic ends the batch. The answer to a request without items is
// one Decision.
func (c *Client) Evaluations(ctx context.Context, req *authzen.EvaluationsRequest) (*authzen.EvaluationsResponse, error) {
	answer := decisions{asked: len(req.Evaluations), semantic: req.Options.Semantic}
	if err := c.post(ctx, authzen.PathEvaluations, req, &answer); err != nil {
		return nil, fmt.Errorf("evaluations: %w", err)
	}
	return &answer.EvaluationsResponse, nil
}

// Authorize asks for one decision in the tenant, actor, action, resource
// shape. An answer with an obligation that this package does not know is an
// error.
func (c *Client) Authorize(ctx context.Context, req *authzen.AuthorizeRequest) (*authzen.AuthorizeResponse, error) {
	var answer authorization
	if err := c.post(ctx, authzen.PathAuthorize, req, &answer); err != nil {
		return nil, fmt.Errorf("authorize: %w", err)
	}
	return &answer.AuthorizeResponse, nil
}

// Metadata returns what the PDP says of itself. It is an error when the
// document names another PDP than the base URL, to the letter (AuthZEN 1.0,
// "Metadata Validation").
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

// request makes a request with the Client's credential. A body, if there is
// one, is JSON.
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

// do sends the request and reads a whole, valid answer of one of the statuses,
// or fails. It returns the header of the answer.
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
		return nil, &StatusError{Status: response.StatusCode, Message: message(body)}
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
	if c.cfg.Header != nil && c.isOwn(r.URL) {
		if err := c.cfg.Header(r.Context(), r.Header); err != nil {
			return fmt.Errorf("header: %w", err)
		}
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

// answers reports whether the response is JSON and the answer to this request.
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

// message returns what the PDP wrote in an error body, if it did.
func message(body []byte) string {
	var failure struct {
		authzen.Problem
		Error authzen.Error `json:"error"`
	}
	if err := json.Unmarshal(body, &failure); err != nil {
		return ""
	}
	return cmp.Or(failure.Error.Message, failure.Detail)
}
