package client

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Requirements on answers beyond the form of every JSON body. Unknown members are ignored (AuthZEN
// 1.0, "JSON Serialization"), except in obligations: a PEP cannot meet an obligation that it does
// not know.
var (
	errNoDecision  = errors.New("there is no decision")
	errNoBatch     = errors.New("there are no evaluations")
	errNoAllow     = errors.New("there is no allow")
	errNoEndpoint  = errors.New("there is no access_evaluation_endpoint")
	errObligations = errors.New("the member obligations is missing")
)

// A decision is an authzen.Decision with a required member decision.
type decision struct{ authzen.Decision }

func (d *decision) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var wire struct {
		Decision *bool                    `json:"decision"`
		Context  *authzen.DecisionContext `json:"context"`
	}
	if err := json.UnmarshalDecode(dec, &wire); err != nil {
		return err
	}
	if wire.Decision == nil {
		return errNoDecision
	}
	d.Decision = authzen.Decision{Decision: *wire.Decision, Context: wire.Context}
	return d.checkObligations()
}

// checkObligations refuses obligations that are ambiguous for a PEP (Obligations Profile, "The
// Obligation Object").
func (d *decision) checkObligations() error {
	if d.Context == nil {
		return nil
	}
	seen := make(map[string]bool)
	for _, o := range d.Context.Obligations {
		if o.ID == "" || o.Type == "" || o.Properties.Kind() != '{' {
			return fmt.Errorf("obligation %q: id, type and properties are required", o.ID)
		}
		if seen[o.ID] {
			return fmt.Errorf("obligation %q: there are two", o.ID)
		}
		seen[o.ID] = true
	}
	return nil
}

// decisions is an authzen.EvaluationsResponse to a request with that number of items.
type decisions struct {
	authzen.EvaluationsResponse
	items    int
	semantic authzen.Semantic
}

func (d *decisions) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if d.items == 0 {
		var single decision
		if err := single.UnmarshalJSONFrom(dec); err != nil {
			return err
		}
		d.EvaluationsResponse.Decision = &single.Decision
		return nil
	}
	var wire struct {
		Evaluations []decision `json:"evaluations"`
	}
	if err := json.UnmarshalDecode(dec, &wire); err != nil {
		return err
	}
	if wire.Evaluations == nil {
		return errNoBatch
	}
	for _, item := range wire.Evaluations {
		d.Evaluations = append(d.Evaluations, item.Decision)
	}
	return d.complete()
}

// complete checks that the batch ended exactly where its semantic requires. A batch that ended
// early for another reason must not pass: the rest might be read as permits.
func (d *decisions) complete() error {
	want := d.items
	for i, item := range d.Evaluations {
		if d.semantic.Stops(item.Decision) {
			want = i + 1
			break
		}
	}
	if got := len(d.Evaluations); got != want || got > d.items {
		return fmt.Errorf("there are %d decisions where %d were due", got, min(want, d.items))
	}
	return nil
}

// An authorization is an authzen.AuthorizeResponse with required members.
type authorization struct{ authzen.AuthorizeResponse }

func (a *authorization) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var wire struct {
		Allow       *bool                  `json:"allow"`
		Obligations jsontext.Value         `json:"obligations"`
		Approval    *authzen.ApprovalTerms `json:"approval"`
		Reason      string                 `json:"reason"`
	}
	if err := json.UnmarshalDecode(dec, &wire); err != nil {
		return err
	}
	if wire.Allow == nil {
		return errNoAllow
	}
	if wire.Obligations.Kind() != '{' {
		return errObligations
	}
	a.Allow, a.Approval, a.Reason = *wire.Allow, wire.Approval, wire.Reason
	return json.Unmarshal(wire.Obligations, &a.Obligations, json.RejectUnknownMembers(true))
}

// metadata is an authzen.Metadata that must name the PDP with that identifier.
type metadata struct {
	authzen.Metadata
	identifier string
}

func (m *metadata) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := json.UnmarshalDecode(dec, &m.Metadata); err != nil {
		return err
	}
	if m.PolicyDecisionPoint != m.identifier {
		return fmt.Errorf("%w: of %q, not of %q", errOtherPDP, m.PolicyDecisionPoint, m.identifier)
	}
	if m.AccessEvaluationEndpoint == "" {
		return errNoEndpoint
	}
	return nil
}

// errOtherPDP means that the metadata are those of another PDP.
var errOtherPDP = errors.New("the document is of another PDP")

// metadataURL returns the URL of the metadata for a base URL. The well-known path goes between host
// and path (AuthZEN 1.0, "Obtaining Policy Decision Point Metadata").
func metadataURL(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("base URL: %w", err)
	}
	return u.Scheme + "://" + u.Host + authzen.PathMetadata + strings.TrimSuffix(u.EscapedPath(), "/"), nil
}

// Properties encodes v as the properties or context of a request. v must encode as a JSON object,
// or as null for none.
func Properties(v any) (jsontext.Value, error) {
	object, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("properties: %w", err)
	}
	switch value := jsontext.Value(object); value.Kind() {
	case 'n':
		return nil, nil
	case '{':
		return value, nil
	default:
		return nil, fmt.Errorf("properties: %T is no JSON object", v)
	}
}
