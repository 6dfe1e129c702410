package credential

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// A tokenClient is the gateway as a client of token endpoints.
type tokenClient struct {
	id     string
	auth   string // client_auth of the settings
	secret func() string
	key    *clientKey
	now    func() time.Time
	http   *http.Client
}

func newTokenClient(cfg *Config, around *Surroundings) tokenClient {
	return tokenClient{
		id: cfg.ClientID, auth: cfg.ClientAuth, secret: around.Secret, now: around.Now, http: newHTTPClient(around.Timeout),
		key: &clientKey{id: cfg.ClientKeyID, read: around.Key},
	}
}

// newHTTPClient returns a client that follows no redirect with what it sends.
func newHTTPClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: cmp.Or(timeout, defaultTimeout), Transport: http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request gets a token from a token endpoint. Every grant is a request with other
// parameters (RFC 6749, sections 4.1.3 and 6; RFC 8693, section 2.1).
func (c *tokenClient) request(ctx context.Context, endpoint string, params url.Values, scopes []string) (*oauth2.Token, error) {
	request := &clientcredentials.Config{ClientID: c.id, TokenURL: endpoint, Scopes: scopes, EndpointParams: params, AuthStyle: oauth2.AuthStyleInHeader}
	if c.secret != nil {
		request.ClientSecret = c.secret()
	}
	if c.auth != "" && c.auth != authBasic || request.ClientSecret == "" {
		request.AuthStyle = oauth2.AuthStyleInParams
	}
	if err := c.assert(endpoint, params); err != nil {
		return nil, err
	}
	return request.Token(context.WithValue(ctx, oauth2.HTTPClient, c.http))
}

// assert adds the assertion of a client with a key (RFC 7523, section 2.2).
func (c *tokenClient) assert(endpoint string, params url.Values) error {
	if c.auth != authJWT {
		return nil
	}
	assertion, err := c.key.assertion(c.id, endpoint, c.now())
	if err != nil {
		return fmt.Errorf("%w: %w", errKey, err)
	}
	params.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
	params.Set("client_assertion", assertion)
	return nil
}
