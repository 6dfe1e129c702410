package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A condition is a check on what a target says of itself.
type condition struct {
	name  string
	check func(*caller) error
}

func (c *caller) conditions(conditions []condition) []Check {
	checks := make([]Check, len(conditions))
	for i, condition := range conditions {
		checks[i] = Check{condition.name, func() error { return condition.check(c) }}
	}
	return checks
}

// The metadata level of the certification scenario.
var discoveryConditions = []condition{
	{"c-6-1", describes(isThere)},
	{"c-6-2", describes(isValidResponse)},
	{"c-6-3", describes(hasRequired)},
	{"c-6-4", describes(hasOptional)},
	{"c-6-5", describes(isValidResponse, hasRequired, hasOptional, namesItself, signsNothing)},
	{"c-6-6", describes(isThere)},
}

// c-5-1 is about the URL a PEP uses. Before a proxy that ends TLS, that is the
// identifier and not the target's base URL.
var transportConditions = []condition{{"c-5-1", identifierIsValid}}

// What the suite checks before every module.
var (
	staticConditions = []condition{
		{"ValidatePDPIdentifier", identifierIsValid},
		{"GetPDPStaticServerConfiguration", isConfigured},
		{"CheckPDPServerConfiguration", staticEndpointsAreValid},
	}
	metadataConditions = []condition{
		{"ValidatePDPIdentifier", identifierIsValid},
		{"GetPDPDynamicServerConfiguration", describes(isThere)},
		{"EnsureDiscoveryMetadataResponseValid", describes(isValidResponse)},
		{"ExtractPDPSignedMetadata", describes(signsNothing)},
		{"CheckPDPServerConfiguration", describes(hasRequired, hasOptional)},
		{"EnsurePolicyDecisionPointMatchesIssuer", describes(namesItself)},
		{"EnsureDiscoveryMetadataParamsNotEmpty", describes(hasNothingEmpty)},
		{"EnsureMetadataCapabilitiesValid", describes(hasCapabilities)},
	}
)

// identifierIsValid demands an https URL with a host, no query and no fragment.
func identifierIsValid(c *caller) error { return isIdentifier(c.target.Identifier) }

func isIdentifier(identifier string) error {
	if err := isEndpoint(identifier); err != nil {
		return err
	}
	if strings.ContainsAny(identifier, "?#") {
		return fmt.Errorf("%q has a query or a fragment", identifier)
	}
	return nil
}

func isEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	if u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not an https URL with a host", endpoint)
	}
	return nil
}

func isConfigured(c *caller) error {
	if c.target.BaseURL == "" || c.target.Identifier == "" {
		return errors.New("there is no base URL")
	}
	return nil
}

func staticEndpointsAreValid(c *caller) error {
	return errors.Join(
		isEndpoint(c.target.Identifier+evaluation.path),
		isEndpoint(c.target.Identifier+evaluations.path),
		isEndpoint(c.target.Identifier+searchSubject.path),
		isEndpoint(c.target.Identifier+searchResource.path),
		isEndpoint(c.target.Identifier+searchAction.path),
	)
}

// A document is the metadata of a target.
type document struct {
	answer
	identifier string
	members    object
}

// describes demands something of the metadata.
func describes(demands ...func(*document) error) func(*caller) error {
	return func(c *caller) error {
		doc, err := c.metadata()
		if err != nil {
			return err
		}
		var errs []error
		for _, demand := range demands {
			errs = append(errs, demand(doc))
		}
		return errors.Join(errs...)
	}
}

// metadata asks the target to describe itself, without credentials.
func (c *caller) metadata() (*document, error) {
	where, err := metadataURL(c.target.BaseURL)
	if err != nil {
		return nil, err
	}
	a, err := c.call(where, request{method: http.MethodGet, authorization: none})
	if err != nil {
		return nil, err
	}
	doc := &document{answer: a, identifier: c.target.Identifier}
	if a.status >= 400 || len(a.body) == 0 {
		return nil, fmt.Errorf("GET %s: status is %d, body %q", where, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &doc.members); err != nil {
		return nil, fmt.Errorf("GET %s: %w", where, err)
	}
	return doc, nil
}

// metadataURL puts the well-known path between host and path.
func metadataURL(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("base URL: %w", err)
	}
	u.Path = authzen.PathMetadata + strings.TrimSuffix(u.Path, "/")
	return u.String(), nil
}

// text returns a member that must be a string if it is there.
func (d *document) text(name string) (string, error) {
	value, ok := d.members[name]
	if !ok {
		return "", nil
	}
	var s string
	if value.Kind() != '"' {
		return "", fmt.Errorf("%s is %s, not a string", name, value)
	}
	err := json.Unmarshal(value, &s)
	return s, err
}

func isThere(d *document) error {
	if d.status != http.StatusOK {
		return fmt.Errorf("status is %d, want 200", d.status)
	}
	return nil
}

func isValidResponse(d *document) error {
	_, err := d.answer.object()
	return err
}

func hasRequired(d *document) error {
	self, err := d.text("policy_decision_point")
	if err == nil {
		err = isIdentifier(self)
	}
	if err != nil {
		return fmt.Errorf("policy_decision_point: %w", err)
	}
	return d.hasEndpoint(evaluation.metadata, true)
}

func hasOptional(d *document) error {
	var errs []error
	for _, name := range []string{
		evaluations.metadata, searchSubject.metadata, searchResource.metadata, searchAction.metadata,
	} {
		errs = append(errs, d.hasEndpoint(name, false))
	}
	return errors.Join(append(errs, hasCapabilities(d))...)
}

func (d *document) hasEndpoint(name string, required bool) error {
	if _, ok := d.members[name]; !ok && !required {
		return nil
	}
	endpoint, err := d.text(name)
	if err == nil {
		err = isEndpoint(endpoint)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func hasCapabilities(d *document) error {
	value, ok := d.members["capabilities"]
	if !ok {
		return nil
	}
	var capabilities []jsontext.Value
	err := json.Unmarshal(value, &capabilities)
	notString := func(v jsontext.Value) bool { return v.Kind() != '"' }
	if err != nil || value.Kind() != '[' || slices.ContainsFunc(capabilities, notString) {
		return fmt.Errorf("capabilities is %s, not an array of strings", value)
	}
	return nil
}

// namesItself compares character by character.
func namesItself(d *document) error {
	self, err := d.text("policy_decision_point")
	if err == nil && self != d.identifier {
		err = fmt.Errorf("policy_decision_point is %q, want %q", self, d.identifier)
	}
	return err
}

// hasNothingEmpty demands that members without a value are left out.
func hasNothingEmpty(d *document) error {
	for name, value := range d.members {
		switch string(value) {
		case `null`, `""`, `[]`:
			return fmt.Errorf("%s is %s and should be left out", name, value)
		}
	}
	return nil
}

// signsNothing refuses signed_metadata, whose values would win over those that
// are checked here and whose signature nothing here can verify.
func signsNothing(d *document) error {
	if value, ok := d.members["signed_metadata"]; ok {
		return fmt.Errorf("signed_metadata cannot be verified: %s", value)
	}
	return nil
}
