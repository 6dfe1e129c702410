package evaluation

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/goccy/go-yaml"
)

// settings are config.yaml of a policy store: how requests become Cedar. They are
// part of the snapshot because answers depend on it.
type settings struct {
	// TypeAliases names the entity type for a type that PEPs send: identity: user.
	TypeAliases map[string]string `yaml:"type_aliases"`
	// SubjectTypes are the types that a subject may have. Without it they are
	// the schema's principal types for the action or, without a schema, every
	// type that is no parent of a stored entity.
	SubjectTypes []string `yaml:"subject_types"`
	// Parents names subject properties that list parents of the subject, and
	// the parents' type: roles: Role.
	Parents map[string]string `yaml:"parents"`
	// Attributes types what a JSON value cannot say, where there is no schema:
	// todo.ownerID: user, context.ip: ipaddr.
	Attributes map[string]string `yaml:"attributes"`
	// PEPAuthoritative lists the types (device) and attributes (user.location)
	// for which what the PEP sends wins over what is stored.
	PEPAuthoritative []string `yaml:"pep_authoritative"`
	// UndeclaredAttributes says what becomes of properties and context members
	// that the schema does not declare: refuse (the default) or drop.
	UndeclaredAttributes string `yaml:"undeclared_attributes"`
	// OnPolicyError says what follows when a policy errors: deny (the default)
	// denies when a forbid does, deny_any when any does, skip never.
	OnPolicyError string `yaml:"on_policy_error"`
	// Clock names the context attribute at which policies find the time of the
	// decision, as a datetime. Without it they find none.
	Clock string `yaml:"clock"`
	// Limits bound what a request may send.
	Limits limits `yaml:"limits"`
}

// limits bound the values of a request. A zero is the default.
type limits struct {
	ArrayElements       int `yaml:"array_elements"`        // of an array; 1024
	NestedArrayElements int `yaml:"nested_array_elements"` // of an array of arrays or objects; 64
	StringBytes         int `yaml:"string_bytes"`          // of a string; 8192
}

// Values of UndeclaredAttributes and OnPolicyError.
const (
	undeclaredRefuse = "refuse"
	undeclaredDrop   = "drop"

	onErrorDeny    = "deny"
	onErrorDenyAny = "deny_any"
	onErrorSkip    = "skip"
)

// readSettings reads config.yaml, which may be missing, and fills in defaults.
func readSettings(src []byte) (settings, Faults) {
	var s settings
	if err := yaml.UnmarshalWithOptions(src, &s, yaml.Strict()); err != nil {
		return s, Faults{yamlFault(fileConfig, err)}
	}
	s.fillDefaults()
	return s, s.check()
}

func (s *settings) fillDefaults() {
	if s.UndeclaredAttributes == "" {
		s.UndeclaredAttributes = undeclaredRefuse
	}
	if s.OnPolicyError == "" {
		s.OnPolicyError = onErrorDeny
	}
	s.Limits.ArrayElements = orDefault(s.Limits.ArrayElements, 1024)
	s.Limits.NestedArrayElements = orDefault(s.Limits.NestedArrayElements, 64)
	s.Limits.StringBytes = orDefault(s.Limits.StringBytes, 8192)
}

func orDefault(n, standard int) int {
	if n == 0 {
		return standard
	}
	return n
}

func (s *settings) check() Faults {
	var faults Faults
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			faults = append(faults, Fault{File: fileConfig,
				Message: key + ": " + value + " is not one of " + strings.Join(allowed, ", "), Hint: didYouMean(value, allowed)})
		}
	}
	oneOf("undeclared_attributes", s.UndeclaredAttributes, undeclaredRefuse, undeclaredDrop)
	oneOf("on_policy_error", s.OnPolicyError, onErrorDeny, onErrorDenyAny, onErrorSkip)
	typeNames := slices.Concat(s.SubjectTypes, slices.Collect(maps.Values(s.TypeAliases)), slices.Collect(maps.Values(s.Parents)))
	for _, name := range slices.Sorted(slices.Values(typeNames)) {
		if _, err := types.NewEntityType(name); err != nil {
			faults = append(faults, Fault{File: fileConfig, Message: name + " is not the name of a Cedar entity type"})
		}
	}
	if s.Limits.ArrayElements < 0 || s.Limits.NestedArrayElements < 0 || s.Limits.StringBytes < 0 {
		faults = append(faults, Fault{File: fileConfig, Message: "limits must not be negative"})
	}
	return faults
}

// entityType returns the Cedar type for a type that a PEP sent.
func (s *settings) entityType(sent string) (cedar.EntityType, error) {
	if alias, ok := s.TypeAliases[sent]; ok {
		sent = alias
	}
	return types.NewEntityType(sent)
}

// pepWins reports whether the PEP is the authority for an attribute.
func (s *settings) pepWins(entity cedar.EntityType, attribute string) bool {
	if len(s.PEPAuthoritative) == 0 {
		return false
	}
	return slices.Contains(s.PEPAuthoritative, string(entity)) ||
		slices.Contains(s.PEPAuthoritative, string(entity)+"."+attribute)
}

// yamlFault turns what the YAML reader says into a Fault.
func yamlFault(file string, err error) Fault {
	fault := Fault{File: file, Message: strings.TrimSpace(err.Error())}
	var at yaml.Error
	if errors.As(err, &at) {
		fault.Message = at.GetMessage()
		if token := at.GetToken(); token != nil && token.Position != nil {
			fault.Line, fault.Column = token.Position.Line, token.Position.Column
		}
	}
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) && unknown.Token != nil {
		fault.Hint = didYouMean(unknown.Token.Value, settingsKeys())
	}
	return fault
}

// settingsKeys lists the keys of config.yaml, for hints.
func settingsKeys() []string {
	var keys []string
	for _, t := range []reflect.Type{reflect.TypeFor[settings](), reflect.TypeFor[limits]()} {
		for field := range t.Fields() {
			keys = append(keys, field.Tag.Get("yaml"))
		}
	}
	return keys
}
