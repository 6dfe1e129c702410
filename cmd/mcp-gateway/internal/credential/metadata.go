package credential

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/policy-service/policy-service/pdp/jwks"
)

// An authorizationServer is what the gateway knows of one.
type authorizationServer struct {
	issuer        string // "" if it has no metadata
	authorization string
	token         string
	revocation    string // "" for none
	namesItself   bool   // in its answers (RFC 9207)
	resource      string // name of the server there (RFC 8707)
}

// metadataAge is how long metadata are used.
const metadataAge = 10 * time.Minute

var errNoMetadata = errors.New("there are no metadata")

// A directory finds the authorization server of a server. It is safe for concurrent
// use.
type directory struct {
	cfg    Config
	server string // URL of the server; "" if Issuer is set
	http   *http.Client
	now    func() time.Time

	mu    sync.Mutex
	found *authorizationServer
	until time.Time
}

// find returns the authorization server: the configured one, or the first that the
// metadata of the server name.
func (d *directory) find(ctx context.Context) (*authorizationServer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found != nil && d.now().Before(d.until) {
		return d.found, nil
	}
	found, err := d.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the authorization server: %w", err)
	}
	d.found, d.until = found, d.now().Add(metadataAge)
	return found, nil
}

func (d *directory) read(ctx context.Context) (*authorizationServer, error) {
	resource := cmp.Or(d.cfg.Resource, d.server)
	if d.cfg.AuthorizationURL != "" {
		return &authorizationServer{issuer: d.cfg.Issuer, authorization: d.cfg.AuthorizationURL, token: d.cfg.TokenURL, resource: resource}, nil
	}
	issuer := d.cfg.Issuer
	if issuer == "" {
		named, err := d.protectedResource(ctx)
		if err != nil {
			return nil, err
		}
		issuer, resource = named.AuthorizationServers[0], cmp.Or(d.cfg.Resource, named.Resource)
	}
	meta, err := auth.GetAuthServerMetadata(ctx, issuer, d.http)
	switch {
	case err != nil:
		return nil, fmt.Errorf("metadata of %s: %w", issuer, err)
	case meta == nil:
		return nil, fmt.Errorf("metadata of %s: %w", issuer, errNoMetadata)
	}
	found := &authorizationServer{
		issuer: meta.Issuer, authorization: meta.AuthorizationEndpoint, token: meta.TokenEndpoint, revocation: meta.RevocationEndpoint,
		namesItself: meta.AuthorizationResponseIssParameterSupported, resource: resource,
	}
	return found, found.check()
}

// check refuses endpoints that tokens must not be sent to.
func (a *authorizationServer) check() error {
	for _, endpoint := range []string{a.issuer, a.authorization, a.token, a.revocation} {
		if err := jwks.CheckURL(endpoint); endpoint != "" && err != nil {
			return fmt.Errorf("metadata of %s: %w", a.issuer, err)
		}
	}
	if a.authorization == "" || a.token == "" {
		return fmt.Errorf("metadata of %s: an endpoint is missing", a.issuer)
	}
	return nil
}

// protectedResource returns the metadata of the server (RFC 9728), from where its
// refusal says that they are, or from the well-known places.
func (d *directory) protectedResource(ctx context.Context) (*oauthex.ProtectedResourceMetadata, error) {
	u, err := url.Parse(d.server)
	if err != nil {
		return nil, err
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	origin := u.Scheme + "://" + u.Host
	places := []struct{ url, resource string }{
		{origin + wellKnown + strings.TrimSuffix(u.Path, "/"), d.server},
		{origin + wellKnown, origin},
	}
	if named := d.challenge(ctx); named != "" {
		places = slices.Insert(places, 0, struct{ url, resource string }{named, d.server})
	}
	var errs []error
	for _, place := range places {
		meta, err := oauthex.GetProtectedResourceMetadata(ctx, place.url, place.resource, d.http)
		if err == nil && len(meta.AuthorizationServers) > 0 {
			return meta, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("metadata of the server: %w", cmp.Or(errors.Join(errs...), errNoMetadata))
}

// challenge returns the address of metadata that the server names when it refuses a
// request without a token, or "".
func (d *directory) challenge(ctx context.Context) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.server, nil)
	if err != nil {
		return ""
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := d.http.Do(r)
	if err != nil {
		return ""
	}
	response.Body.Close()
	challenges, err := oauthex.ParseWWWAuthenticate(response.Header.Values("WWW-Authenticate"))
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return ""
	}
	for _, c := range challenges {
		if c.Scheme == "bearer" && sameOrigin(c.Params["resource_metadata"], d.server) {
			return c.Params["resource_metadata"]
		}
	}
	return ""
}

// sameOrigin reports whether two URLs have one origin: a server may not have the
// gateway request addresses of others.
func sameOrigin(a, b string) bool {
	u, err := url.Parse(a)
	v, err2 := url.Parse(b)
	return err == nil && err2 == nil && u.Scheme == v.Scheme && u.Host == v.Host
}
