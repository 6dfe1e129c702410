package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A service is the Access Request Service of a PDP, as the PDP's metadata name
// it. It may have another origin than the PDP (Access Request Profile,
// "Discovery").
type service struct {
	mu       sync.Mutex
	endpoint string // "" until the metadata have been read
}

// discover returns the Access Request Endpoint of the metadata, or "" where
// there are no metadata, or they are of another PDP or name none: the PDP is
// then known by its base URL alone. What was found is kept.
func (s *service) discover(ctx context.Context, c *Client) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoint != "" {
		return s.endpoint, nil
	}
	metadata, err := c.Metadata(ctx)
	var status *StatusError
	switch {
	case errors.Is(err, errOtherPDP), errors.As(err, &status) && status.Status == http.StatusNotFound:
		return "", nil
	case err != nil:
		return "", err
	}
	s.endpoint = metadata.AccessRequestEndpoint
	return s.endpoint, nil
}

// requestEndpoint returns where access requests are submitted: where the denial
// says, if that is trusted, else where the metadata say, else the default path.
func (c *Client) requestEndpoint(ctx context.Context, ofDenial string) (string, error) {
	if ofDenial != "" {
		return ofDenial, c.trusts(ctx, ofDenial)
	}
	endpoint, err := c.service.discover(ctx, c)
	if err != nil {
		return "", err
	}
	if endpoint == "" {
		return strings.TrimSuffix(c.base, "/") + authzen.PathRequests, nil
	}
	return endpoint, c.trusts(ctx, endpoint)
}

// trusts reports a URL that is neither of the PDP's own origin nor of that of its
// Access Request Endpoint. Only the metadata name that: a denial does not (Access
// Request Profile, "Trusting URLs").
func (c *Client) trusts(ctx context.Context, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Host == "" {
		return fmt.Errorf("%w: %s", ErrForeign, text)
	}
	if c.isOwn(u) {
		return nil
	}
	endpoint, err := c.service.discover(ctx, c)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrForeign, text, err)
	}
	named, err := url.Parse(endpoint)
	if err != nil || endpoint == "" || !sameOrigin(named, u) || !c.isAsSafe(named) {
		return fmt.Errorf("%w: %s", ErrForeign, text)
	}
	return nil
}

// isOwn reports whether a URL is of the PDP's own origin.
func (c *Client) isOwn(u *url.URL) bool {
	base, err := url.Parse(c.base)
	return err == nil && sameOrigin(base, u)
}

// isAsSafe reports whether a URL has TLS if that of the PDP has.
func (c *Client) isAsSafe(u *url.URL) bool {
	base, err := url.Parse(c.base)
	return err == nil && (u.Scheme == "https" || u.Scheme == base.Scheme)
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host && a.Host != "" }
