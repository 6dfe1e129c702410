package obligations

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/result"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Terms are the conditions and obligations of one policy. The zero value has none.
type Terms struct {
	Approval    string // template for the approval that this permit requires
	Requestable string // template for an approval that lifts this forbid
	Capability  string // template for a capability that lifts this forbid
	ReasonUser  string
	ReasonAdmin string
	Obligations []Obligation
}

// An Obligation is an obligation of a policy, before a decision gives it an id.
type Obligation struct {
	Type       string
	Properties jsontext.Value // with {{…}} placeholders for members of the request
	// Withhold denies the request if the PEP has not declared the type. The annotation sets it with
	// required_support. The default is true for step-up and custom, and false for the others.
	Withhold bool
}

// Annotations of this package other than obligation_….
const (
	keyApproval    = "approval"
	keyRequestable = "requestable"
	keyCapability  = "capability"
	keyReasonUser  = "reason_user"
	keyReasonAdmin = "reason_admin"
)

// kinds maps annotations to obligation types (Obligations Profile, "Obligation Types").
var kinds = map[string]kind{
	"obligation_step_up":             {authzen.ObligationStepUp, true, []property{{name: "acr_value"}, {name: "amr_values", list: true, optional: true}}},
	"obligation_notification":        {authzen.ObligationNotification, false, []property{{name: "to", list: true, orOne: true}, {name: "body"}, {name: "topic", optional: true}}},
	"obligation_session_termination": {authzen.ObligationSessionTermination, false, []property{{name: "subject"}}},
	"obligation_custom":              {authzen.ObligationCustom, true, nil},
}

type kind struct {
	name       string
	withhold   bool // default of required_support
	properties []property
}

// A property is a string, or a list of strings.
type property struct {
	name     string
	list     bool
	orOne    bool // a list of at least one, or a single string
	optional bool
}

// check checks a property's value against its type. The value is nil if absent.
func (p property) check(value jsontext.Value) error {
	strings, wanted := []jsontext.Value{value}, "the string"
	switch {
	case value == nil && p.optional:
		return nil
	case p.orOne && value.Kind() == '"':
	case p.list:
		wanted = "a list of strings as"
		if p.orOne {
			wanted = "a string or a list of strings as"
		}
		if json.Unmarshal(value, &strings) != nil || value.Kind() != '[' || p.orOne && len(strings) == 0 {
			strings = []jsontext.Value{nil}
		}
	}
	for _, s := range strings {
		if s.Kind() != '"' {
			return fmt.Errorf("needs %s %q", wanted, p.name)
		}
	}
	return nil
}

// reserved lists prefixes of annotation keys of this package. An unknown key with such a prefix is
// a spelling mistake.
var reserved = []string{"obligation", "approval", "requestable", "capability", "reason"}

// Parse parses a policy's annotations. It reports all faults at once, each in a line that begins
// with its annotation.
func Parse(permit bool, annotations map[string]string) (Terms, error) {
	var terms Terms
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if err := terms.read(permit, key, annotations[key]); err != nil {
			faults = append(faults, at("@"+key, err)...)
		}
	}
	if terms.Requestable != "" && terms.Capability != "" {
		faults = append(faults, fmt.Errorf("@%s: stands beside @%s: write two policies, one with each", keyCapability, keyRequestable))
	}
	return terms, errors.Join(faults...)
}

// at returns an error for each line of err, with the place of the fault in front.
func at(place string, err error) (faults []error) {
	for line := range strings.Lines(err.Error()) {
		faults = append(faults, fmt.Errorf("%s: %s", place, strings.TrimSpace(line)))
	}
	return faults
}

func (t *Terms) read(permit bool, key, value string) error {
	switch key {
	case keyApproval:
		t.Approval = value
		return onlyOn(permit, "permit", value)
	case keyRequestable:
		t.Requestable = value
		return onlyOn(!permit, "forbid", value)
	case keyCapability:
		t.Capability = value
		return onlyOn(!permit, "forbid", value)
	case keyReasonUser:
		t.ReasonUser = value
		return nil
	case keyReasonAdmin:
		t.ReasonAdmin = value
		return nil
	}
	if k, ok := kinds[key]; ok {
		all, err := k.parseAll(value)
		t.Obligations = append(t.Obligations, all...)
		return err
	}
	if slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
		return fmt.Errorf("is not known; known are %s", strings.Join(Known(), ", "))
	}
	return nil
}

func onlyOn(right bool, effect, template string) error {
	if !right {
		return fmt.Errorf("stands only on a %s", effect)
	}
	if template == "" {
		return errors.New("needs the name of a template")
	}
	return nil
}

// Known lists the annotations of this package.
func Known() []string {
	names := slices.Collect(maps.Keys(kinds))
	names = append(names, keyApproval, keyRequestable, keyCapability, keyReasonUser, keyReasonAdmin)
	slices.Sort(names)
	for i, name := range names {
		names[i] = "@" + name
	}
	return names
}

// maxObligations is the maximum number of obligations of an annotation.
const maxObligations = 16

// parseAll parses the value of an obligation annotation: the JSON object of one obligation, or an
// array of the objects of several. Cedar allows each annotation once in a policy.
func (k kind) parseAll(value string) ([]Obligation, error) {
	raw := jsontext.Value(value)
	if raw.Kind() != '[' {
		o, err := k.parse(raw)
		return []Obligation{o}, err
	}
	var listed []jsontext.Value
	if json.Unmarshal(raw, &listed) != nil || len(listed) == 0 || len(listed) > maxObligations {
		return nil, fmt.Errorf("must be a JSON object, or an array of 1 to %d objects: %q", maxObligations, value)
	}
	var all []Obligation
	var faults []error
	for i, raw := range listed {
		o, err := k.parse(raw)
		if err != nil {
			faults = append(faults, at(fmt.Sprintf("[%d]", i), err)...)
		}
		all = append(all, o)
	}
	return all, errors.Join(faults...)
}

// parse parses the JSON object of an obligation.
func (k kind) parse(value jsontext.Value) (Obligation, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(value, &members); err != nil || members == nil {
		return Obligation{}, fmt.Errorf("must be a JSON object, or an array of objects: %q", string(value))
	}
	for _, p := range k.properties {
		if err := p.check(members[p.name]); err != nil {
			return Obligation{}, err
		}
	}
	withhold, err := k.withholds(members)
	if err != nil {
		return Obligation{}, err
	}
	if k.name == authzen.ObligationNotification {
		if err := completeNotification(members); err != nil {
			return Obligation{}, err
		}
	}
	properties, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return Obligation{}, fmt.Errorf("encode properties: %w", err)
	}
	if k.name == authzen.ObligationCustom {
		if err := checkCustom(members["action"], properties); err != nil {
			return Obligation{}, err
		}
	}
	if err := checkPlaceholders(properties); err != nil {
		return Obligation{}, err
	}
	return Obligation{Type: k.name, Properties: properties, Withhold: withhold}, nil
}

// checkCustom checks the custom obligations that act on results. Other actions are a
// matter of the PEP.
func checkCustom(action, properties jsontext.Value) error {
	_, err := result.Parse(properties)
	if !errors.Is(err, result.ErrAction) {
		return err
	}
	var name string
	if json.Unmarshal(action, &name) != nil {
		return nil
	}
	for _, known := range result.Actions() {
		if strings.EqualFold(strings.ReplaceAll(name, "-", "_"), known) {
			return fmt.Errorf("the action %q is not known: did you mean %q?", name, known)
		}
	}
	return nil
}

// withholds removes required_support from the members and returns its value.
func (k kind) withholds(members map[string]jsontext.Value) (bool, error) {
	raw, ok := members["required_support"]
	if !ok {
		return k.withhold, nil
	}
	delete(members, "required_support")
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("required_support must be true or false, not %s", raw)
}
