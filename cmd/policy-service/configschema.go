package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/callers"
)

type configSchemaCmd struct{}

// Run prints the JSON Schema of the configuration file, for editors.
func (c *configSchemaCmd) Run(ctx *kong.Context) error {
	text, err := configSchemaText(settings(ctx.Model))
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// configSchemaText is the JSON of configSchema.
func configSchemaText(flags []*kong.Flag) ([]byte, error) {
	text, err := json.Marshal(configSchema(flags), json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return append(text, '\n'), nil
}

// A schema is a JSON Schema (draft 2020-12) with the keywords that configuration files
// need.
type schema struct {
	Version              string             `json:"$schema,omitzero"`
	Title                string             `json:"title,omitzero"`
	Description          string             `json:"description,omitzero"`
	Type                 string             `json:"type"`
	Enum                 []string           `json:"enum,omitempty"`
	Pattern              string             `json:"pattern,omitzero"`
	Not                  *nothing           `json:"not,omitzero"`
	Minimum              *int               `json:"minimum,omitzero"`
	Required             []string           `json:"required,omitempty"`
	Items                *schema            `json:"items,omitzero"`
	MinItems             int                `json:"minItems,omitzero"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	MinProperties        int                `json:"minProperties,omitzero"`
	AdditionalProperties any                `json:"additionalProperties,omitempty"` // false, or the schema of further members
}

// A nothing has the pattern of values that equal 0.
type nothing struct {
	Pattern string `json:"pattern"`
}

// configSchema is the schema of the configuration file. Each setting has the type of
// its flag, and no other settings exist.
func configSchema(flags []*kong.Flag) *schema {
	root := object()
	root.Version, root.Title = "https://json-schema.org/draft/2020-12/schema", "Configuration file of policy-service serve"
	for _, flag := range flags {
		above, name := root, configKey(flag)
		if group, rest, found := strings.Cut(name, "."); found {
			if above.Properties[group] == nil {
				above.Properties[group] = object()
			}
			above, name = above.Properties[group], rest
		}
		s := schemaOf(flag.Target.Type())
		if s.Description = flag.Help; flag.Enum != "" {
			s.Enum = strings.Split(flag.Enum, ",")
		}
		if flag.Tag.Has(tagLeast) {
			s.Pattern = hours
		}
		if flag.Tag.Has(tagSome) {
			s.notZero()
		}
		above.Properties[name] = s
	}
	return root
}

// notZero excludes the durations and numbers that equal 0.
func (s *schema) notZero() {
	if s.Type == "string" {
		s.Not = &nothing{Pattern: "^[0.a-zµ]*$"}
	} else {
		s.Minimum = new(1)
	}
}

func object() *schema {
	return &schema{Type: "object", Properties: map[string]*schema{}, AdditionalProperties: false}
}

// hours are durations of at least an hour, which is the smallest minimum of a flag.
const hours = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d))*[1-9][0-9]*(\.[0-9]+)?[hd]([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d))*)$`

// durations are those that [yamldoc.ParseDuration] reads.
const durations = `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d))+)$`

// schemaOf returns the schema of a type, with its names in YAML.
func schemaOf(t reflect.Type) *schema {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return &schema{Type: "string", Pattern: durations}
	case reflect.TypeFor[decisionlog.Durability]():
		return &schema{Type: "string", Enum: []string{decisionlog.Strict.String(), decisionlog.Batched.String()}}
	case reflect.TypeFor[decisionlog.Period]():
		return &schema{Type: "string", Pattern: ".+/.*"}
	case reflect.TypeFor[pdp.Scope]():
		return &schema{Type: "string", Enum: scopes()}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer", Minimum: new(0)}
	case reflect.Float64:
		return &schema{Type: "number", Minimum: new(0)}
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Map:
		return &schema{Type: "object", MinProperties: 1, AdditionalProperties: schemaOf(t.Elem())}
	case reflect.Slice:
		return &schema{Type: "array", Items: schemaOf(t.Elem())}
	case reflect.Struct:
		s := object()
		s.MinProperties = 1
		s.add(t)
		return s
	}
	return &schema{Type: "string"}
}

// scopes are the scopes of a credential.
func scopes() (names []string) {
	for _, s := range callers.Scopes() {
		names = append(names, string(s))
	}
	return names
}

// add adds the members of a struct and of its inline structs.
func (s *schema) add(t reflect.Type) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if options == "inline" {
			s.add(field.Type)
		} else {
			member := schemaOf(field.Type)
			if field.Tag.Get("list") == "some" {
				member.MinItems = 1
			}
			if enum := field.Tag.Get("enum"); enum != "" {
				member.Enum = strings.Split(enum, ",")
			}
			if pattern := field.Tag.Get("pattern"); pattern != "" {
				member.Pattern = pattern
			}
			if options == "" && member.Type == "string" {
				s.Required = append(s.Required, name)
			}
			s.Properties[name] = member
		}
	}
}
