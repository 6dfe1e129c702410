package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An ApprovalTemplate holds the terms of approvals from config.yaml.
type ApprovalTemplate struct {
	// TTL is how long an approval is valid. The default is 15m.
	TTL time.Duration `yaml:"ttl" duration:"some"`
	// DecideWithin is how long a request waits for a decision. The default is 1h.
	DecideWithin time.Duration `yaml:"decide_within" duration:"some"`
	// Escalation is the waiting time after which a request moves to the top of the list. The default is
	// never.
	Escalation time.Duration `yaml:"escalation"`
	// Uses is the number of permits an approval allows; 0 is unlimited. The default is 1.
	Uses *int `yaml:"uses"`
	// Quorum is the number of people that must approve. The default is 1.
	Quorum *int `yaml:"quorum"`
	// Scope is call (the default: the denied request) or resource_type (the same action on every resource
	// of the type).
	Scope string `yaml:"scope"`
	// Context names the context members that the approval is bound to. The default is all of them.
	Context []string `yaml:"context"`
	// PinRevision ends an approval when the policies change.
	PinRevision bool `yaml:"pin_revision"`
	// StepUp requires that approvers have signed in again at the identity provider of the console, for this
	// decision alone. It excludes AutoApprover.
	StepUp bool `yaml:"step_up"`
	// AutoApprover is consulted immediately, under the same policies as people.
	AutoApprover *approver `yaml:"auto_approver"`
	// MaxDuration is the longest duration of a capability that the template approves. The default is 8h.
	MaxDuration time.Duration `yaml:"max_duration" duration:"some"`
	// Edit names arguments of the call that an approver may change. It needs the scope call and a quorum
	// of 1.
	Edit []string `yaml:"edit"`
	// Notify names the ways of console.notify in which approvers are notified of requests. The default is
	// all that reach people. An empty list notifies nobody.
	Notify []string `yaml:"notify"`
	// TellComment shows the requester the comment of the approver who denied.
	TellComment bool `yaml:"tell_comment"`
	// TellApprovers shows the requester who approved.
	TellApprovers bool `yaml:"tell_approvers"`
	// Display is shown to the requester.
	Display map[string]any `yaml:"display"`
	// RequestSchema is the JSON Schema of requested_access.
	RequestSchema map[string]any `yaml:"request_schema"`
}

type approver struct {
	Type string `yaml:"type"`
	ID   string `yaml:"id"`
}

// Compile returns the terms of a template, or every fault in it.
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
		StepUp:       t.StepUp,
		TellComment:  t.TellComment,

		TellApprovers: t.TellApprovers,
		MaxDuration:   authzen.Duration{Duration: t.MaxDuration},
		Edit:          t.Edit,
		Notify:        t.Notify,
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

// quorum returns the number of people that must approve. It treats 0 as 1, because logged revisions
// used it that way.
func (t ApprovalTemplate) quorum() int {
	if t.Quorum == nil {
		return 1
	}
	return cmp.Or(*t.Quorum, 1)
}

// maxTTL limits the validity of an approval, because its signing key is kept that long.
const maxTTL = 60 * 24 * time.Hour

func (t ApprovalTemplate) check(terms authzen.ApprovalTemplate) error {
	var errs []error
	if t.TTL < 0 || t.DecideWithin < 0 || t.Escalation < 0 || t.MaxDuration < 0 || terms.Quorum < 0 || terms.Uses < 0 {
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
	if len(t.Edit) > 0 && (terms.Quorum > 1 || terms.Scope != authzen.ScopeCall) {
		errs = append(errs, fmt.Errorf("edit needs a quorum of 1 and the scope %s: what one person changes, nobody else has approved", authzen.ScopeCall))
	}
	if slices.Contains(t.Edit, "") {
		errs = append(errs, errors.New("edit must name arguments"))
	}
	if a := t.AutoApprover; a != nil {
		if _, err := types.NewEntityType(a.Type); err != nil || a.ID == "" {
			errs = append(errs, errors.New("auto_approver must have the type and the id of an entity"))
		}
		if t.StepUp {
			errs = append(errs, errors.New("step_up excludes auto_approver: no person signs in for it"))
		}
	}
	return errors.Join(errs...)
}

// requestSchema compiles the schema of requested_access. External references are not allowed.
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

// checkAccess reports where a requested_access violates its schema.
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
