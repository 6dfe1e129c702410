package pdp

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// newMetadata describes the PDP that PEPs reach at publicURL. The URL is configured, because the
// Host of a request proves nothing. Plain http is allowed only on this host or with insecure
// (AuthZEN 1.0, "Endpoint Parameters").
func newMetadata(publicURL string, insecure bool) (authzen.Metadata, error) {
	u, err := url.Parse(publicURL)
	if err != nil {
		return authzen.Metadata{}, fmt.Errorf("public URL: %w", err)
	}
	if !isBase(publicURL, u) {
		return authzen.Metadata{}, fmt.Errorf("public URL %q: write https://host or https://host/path, without a slash at the end", publicURL)
	}
	if u.Scheme == "http" && !insecure && !jwks.IsThisHost(u.Hostname()) {
		return authzen.Metadata{}, fmt.Errorf("public URL %q: PEPs on other hosts need https (or say --insecure)", publicURL)
	}
	return metadataFor(publicURL), nil
}

func metadataFor(base string) authzen.Metadata {
	return authzen.Metadata{
		PolicyDecisionPoint:       base,
		AccessEvaluationEndpoint:  base + authzen.PathEvaluation,
		AccessEvaluationsEndpoint: base + authzen.PathEvaluations,
		SearchSubjectEndpoint:     base + authzen.PathSearchSubject,
		SearchResourceEndpoint:    base + authzen.PathSearchResource,
		SearchActionEndpoint:      base + authzen.PathSearchAction,
		AccessRequestEndpoint:     base + authzen.PathRequests,
		CapabilityEndpoint:        base + authzen.PathCapabilities,
		IntrospectionEndpoint:     base + authzen.PathIntrospect,
		RevocationsEndpoint:       base + authzen.PathRevoked,
		JWKSURI:                   base + authzen.PathJWKS,
		Capabilities:              []string{authzen.CapabilityAccessRequest},
		SupportedObligations:      authzen.ObligationTypes(),
	}
}

// isBase reports whether paths can be appended to the URL. The URL's own path must not contain
// characters that a router interprets.
func isBase(text string, u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		!strings.ContainsAny(text, "?#") && !strings.HasSuffix(text, "/") && !strings.ContainsAny(u.EscapedPath(), ":*%")
}

// metadataPath returns the path of the metadata: the well-known part precedes the path of the PDP's
// own URL (AuthZEN 1.0, "Obtaining PDP Metadata").
func metadataPath(m authzen.Metadata) string {
	u, err := url.Parse(m.PolicyDecisionPoint)
	if err != nil { // newMetadata has parsed this URL
		panic(err)
	}
	return authzen.PathMetadata + u.Path
}

// serveMetadata serves the metadata of the PDP or of a tenant's PDP. If callers are authenticated,
// it answers the same for every valid tenant name: the route needs no credentials and must not
// reveal which tenants exist.
func serveMetadata(engine *evaluation.Engine, m authzen.Metadata, auth authenticator) echo.HandlerFunc {
	return func(c echo.Context) error {
		described := m
		if tenant := c.Param(paramTenant); tenant != "" {
			if !authzen.ValidTenant(tenant) || !auth.known() && !engine.HasTenant(tenant) {
				return snapshot.ErrUnknownTenant
			}
			described = metadataFor(m.PolicyDecisionPoint + "/tenants/" + tenant)
		}
		body, err := json.Marshal(described)
		if err != nil {
			return fmt.Errorf("encode metadata: %w", err)
		}
		c.Response().Header().Set(echo.HeaderCacheControl, maxAge)
		return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
	}
}

// maxAge is how long clients may cache metadata and keys.
const maxAge = "max-age=300"
