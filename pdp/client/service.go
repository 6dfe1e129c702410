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

// A service is the Access Request Service in the PDP's metadata. Its origin may differ from the
// PDP's (Access Request Profile, "Discovery").
type service struct {
	mu       sync.Mutex
	endpoint string // "" until the metadata have been read
}

// discover returns the Access Request Endpoint in the metadata and caches it. It returns "" if
// there are no metadata, if they are those of another PDP, or if they name no endpoint.
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

// requestEndpoint returns the URL for Access Requests: that of the denial if it is trusted, else
// that of the metadata, else the default path.
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

// trusts returns an error for a URL whose origin is neither the PDP's nor that of the Access
// Request Endpoint in its metadata. A denial cannot extend trust (Access Request Profile, "Trusting
// URLs").
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

// isOwn reports whether a URL has the PDP's origin.
func (c *Client) isOwn(u *url.URL) bool {
	base, err := url.Parse(c.base)
	return err == nil && sameOrigin(base, u)
}

// isAsSafe reports whether a URL uses TLS, or the PDP's URL does not either.
func (c *Client) isAsSafe(u *url.URL) bool {
	base, err := url.Parse(c.base)
	return err == nil && (u.Scheme == "https" || u.Scheme == base.Scheme)
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host && a.Host != "" }
