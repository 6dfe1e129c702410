package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An approvalTemplate says in config.yaml how people approve.
type ApprovalTemplate struct {
	// TTL is how long an approval stands. The default is 15m.
	TTL time.Duration `yaml:"ttl" duration:"some"`
	// DecideWithin is how long a request waits for a person. The default is 1h.
	DecideWithin time.Duration `yaml:"decide_within" duration:"some"`
	// Escalation is after how long a request that waits comes first. Without it
	// none does.
	Escalation time.Duration `yaml:"escalation"`
	// Uses is how many permits an approval is good for; 0 is any number. The
	// default is 1.
	Uses *int `yaml:"uses"`
	// Quorum is how many people have to approve. The default is 1.
	Quorum *int `yaml:"quorum"`
	// Scope is call (the default: the request that was denied) or resource_type
	// (the same action on every resource of the type).
	Scope string `yaml:"scope"`
	// Context names the members of the context that the approval is bound to.
	// The default is all of them.
	Context []string `yaml:"context"`
	// PinRevision ends an approval when the policies change.
	PinRevision bool `yaml:"pin_revision"`
	// AutoApprover is asked at once, by the same policies as people.
	AutoApprover *approver `yaml:"auto_approver"`
	// TellComment has whoever asked told what the approver who denied wrote.
	TellComment bool `yaml:"tell_comment"`
	// Display is shown to the person who asks.
	Display map[string]any `yaml:"display"`
	// RequestSchema is the JSON Schema of what a request has to say.
	RequestSchema map[string]any `yaml:"request_schema"`
}

type approver struct {
	Type string `yaml:"type"`
	ID   string `yaml:"id"`
}

// addTemplates lays templates over those that are there. What the guardrails
// ask for no tenant changes.
func (s *Settings) addTemplates(own map[string]ApprovalTemplate) error {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if _, taken := s.ApprovalTemplates[name]; taken {
			return fmt.Errorf("approval_templates: %s is the guardrails'", name)
		}
	}
	if len(own) > 0 {
		all := maps.Clone(own)
		maps.Copy(all, s.ApprovalTemplates)
		s.ApprovalTemplates = all
	}
	return nil
}

// readTemplates compiles the templates. Their faults are those of config.yaml.
func (c *compiler) readTemplates(set Settings) map[string]authzen.ApprovalTemplate {
	out := make(map[string]authzen.ApprovalTemplate, len(set.ApprovalTemplates))
	for name, template := range set.ApprovalTemplates {
		if terms, err := template.Compile(); err == nil {
			out[name] = terms
		}
	}
	return out
}

// Compile returns the terms of a template, or everything that is wrong with it.
func (t ApprovalTemplate) Compile() (authzen.ApprovalTemplate, error) {
	terms := authzen.ApprovalTemplate{
		TTL:          authzen.Duration{Duration: cmp.Or(t.TTL, 15*time.Minute)},
		DecideWithin: authzen.Duration{Duration: cmp.Or(t.DecideWithin, time.Hour)},
		Escalation:   authzen.Duration{Duration: t.Escalation},
		Uses:         1,
		Quorum:       t.quorum(),
		Scope:        authzen.ApprovalScope(cmp.Or(t.Scope, string(authzen.ScopeCall))),
		Context:      t.Context,
		PinRevision:  t.PinRevision,
		TellComment:  t.TellComment,
	}
	if t.Uses != nil {
		terms.Uses = *t.Uses
	}
	errs := []error{t.check(terms)}
	if t.AutoApprover != nil {
		terms.AutoApprover = &authzen.Subject{Type: t.AutoApprover.Type, ID: t.AutoApprover.ID}
	}
	var err error
	if t.Display != nil {
		terms.Display, err = json.Marshal(t.Display, json.Deterministic(true))
		errs = append(errs, err)
	}
	if t.RequestSchema != nil {
		terms.Schema, terms.CheckAccess, err = requestSchema(t.RequestSchema)
		errs = append(errs, err)
	}
	return terms, errors.Join(errs...)
}

// quorum returns how many people have to approve. A 0 that was written has been
// one person's for revisions that are logged.
func (t ApprovalTemplate) quorum() int {
	if t.Quorum == nil {
		return 1
	}
	return cmp.Or(*t.Quorum, 1)
}

// maxTTL bounds how long an approval stands: what it is signed with is kept
// that long.
const maxTTL = 60 * 24 * time.Hour

func (t ApprovalTemplate) check(terms authzen.ApprovalTemplate) error {
	var errs []error
	if t.TTL < 0 || t.DecideWithin < 0 || t.Escalation < 0 || terms.Quorum < 0 || terms.Uses < 0 {
		errs = append(errs, errors.New("must not be negative"))
	}
	if t.TTL+t.DecideWithin > maxTTL {
		errs = append(errs, fmt.Errorf("ttl and decide_within are more than %s", maxTTL))
	}
	if t.Escalation >= terms.DecideWithin.Duration {
		errs = append(errs, errors.New("escalation comes after decide_within"))
	}
	if terms.Scope != authzen.ScopeCall && terms.Scope != authzen.ScopeResourceType {
		errs = append(errs, fmt.Errorf("scope: %s is not one of %s, %s", terms.Scope, authzen.ScopeCall, authzen.ScopeResourceType))
	}
	if a := t.AutoApprover; a != nil {
		if _, err := types.NewEntityType(a.Type); err != nil || a.ID == "" {
			errs = append(errs, errors.New("auto_approver must have the type and the id of an entity"))
		}
	}
	return errors.Join(errs...)
}

// requestSchema compiles the schema of requested_access. It may refer to
// nothing outside itself.
func requestSchema(source map[string]any) (jsontext.Value, func(jsontext.Value) error, error) {
	text, err := json.Marshal(source, json.Deterministic(true))
	if err != nil {
		return nil, nil, fmt.Errorf("request_schema: %w", err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, nil, fmt.Errorf("request_schema: %w", err)
	}
	const name = "request_schema.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(name, document); err != nil {
		return nil, nil, fmt.Errorf("request_schema: %w", err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, nil, fmt.Errorf("request_schema: %w", err)
	}
	return text, func(access jsontext.Value) error { return checkAccess(compiled, access) }, nil
}

// checkAccess says where a requested_access is not what its schema asks for.
func checkAccess(schema *jsonschema.Schema, access jsontext.Value) error {
	if access == nil {
		access = jsontext.Value("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(access))
	if err != nil {
		return authzen.Invalid("/requested_access", "is not valid JSON")
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(value); !errors.As(err, &invalid) {
		return err
	}
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	path := "/requested_access"
	for _, name := range invalid.InstanceLocation {
		path = below(path, name)
	}
	return authzen.Invalid(path, "is not what the template asks for: %s", invalid.Error())
}
