package obligations

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Terms are what one policy asks for beside its effect. The zero value asks
// for nothing.
type Terms struct {
	Approval    string // template by which a person approves what this permit allows
	Requestable string // template by which a person may lift this forbid
	ReasonUser  string
	ReasonAdmin string
	Obligations []Obligation
}

// An Obligation is what a policy obliges the PEP to, before it has an id.
type Obligation struct {
	Type       string
	Properties jsontext.Value // with {{…}} where the request is to be filled in
	// Withhold: a PEP that has not declared the type is answered with a denial
	// instead. It is set by the member required_support of the annotation and
	// is true for step-up and custom where that is absent.
	Withhold bool
}

// The annotations of this package, but for the obligation_ ones.
const (
	keyApproval    = "approval"
	keyRequestable = "requestable"
	keyReasonUser  = "reason_user"
	keyReasonAdmin = "reason_admin"
)

// kinds are the obligation types by annotation (Obligations Profile,
// "Obligation Types").
var kinds = map[string]kind{
	"obligation_step_up":             {authzen.ObligationStepUp, true, []property{{name: "acr_value"}, {name: "amr_values", list: true, optional: true}}},
	"obligation_notification":        {authzen.ObligationNotification, false, []property{{name: "to", list: true, orOne: true}, {name: "body"}, {name: "topic", optional: true}}},
	"obligation_session_termination": {authzen.ObligationSessionTermination, false, []property{{name: "subject"}}},
	"obligation_custom":              {authzen.ObligationCustom, true, nil},
}

type kind struct {
	name       string
	withhold   bool // unless the annotation says otherwise
	properties []property
}

// A property is a string, or a list of strings.
type property struct {
	name     string
	list     bool
	orOne    bool // a list of at least one, or the one as a string
	optional bool
}

// check holds a property's value, nil where there is none, against its type.
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

// reserved are the beginnings of annotation keys that belong to this package:
// a key that begins so and is not one of its own is a spelling mistake.
var reserved = []string{"obligation", "approval", "requestable", "reason"}

// Parse reads a policy's annotations. It reports every fault at once.
func Parse(permit bool, annotations map[string]string) (Terms, error) {
	var terms Terms
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if err := terms.read(permit, key, annotations[key]); err != nil {
			faults = append(faults, fmt.Errorf("@%s: %w", key, err))
		}
	}
	return terms, errors.Join(faults...)
}

func (t *Terms) read(permit bool, key, value string) error {
	switch key {
	case keyApproval:
		t.Approval = value
		return onlyOn(permit, "permit", value)
	case keyRequestable:
		t.Requestable = value
		return onlyOn(!permit, "forbid", value)
	case keyReasonUser:
		t.ReasonUser = value
		return nil
	case keyReasonAdmin:
		t.ReasonAdmin = value
		return nil
	}
	if k, ok := kinds[key]; ok {
		o, err := k.parse(value)
		t.Obligations = append(t.Obligations, o)
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

// Known lists the annotations of this package, as they are written.
func Known() []string {
	names := slices.Collect(maps.Keys(kinds))
	names = append(names, keyApproval, keyRequestable, keyReasonUser, keyReasonAdmin)
	slices.Sort(names)
	for i, name := range names {
		names[i] = "@" + name
	}
	return names
}

// parse reads the JSON object of an obligation annotation.
func (k kind) parse(value string) (Obligation, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal([]byte(value), &members); err != nil || members == nil {
		return Obligation{}, fmt.Errorf("must be a JSON object: %q", value)
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
	if err := checkPlaceholders(properties); err != nil {
		return Obligation{}, err
	}
	return Obligation{Type: k.name, Properties: properties, Withhold: withhold}, nil
}

// withholds takes required_support out of the members and reads it.
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
