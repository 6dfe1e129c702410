package schemas_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/schematest"
)

// A role says how strictly a schema speaks of a Go type.
type role int

const (
	request  role = iota // what is optional may be null
	partial              // of a request; every member is optional
	response             // never null
)

// goTypes says which Go type each schema describes.
var goTypes = map[string]struct {
	value any
	role  role
}{
	"AccessRequest":         {authzen.AccessRequest{}, response},
	"Capability":            {authzen.Capability{}, response},
	"CapabilityConstraints": {authzen.CapabilityConstraints{}, response},
	"CapabilityList":        {authzen.CapabilityList{}, response},
	"CapabilityRequest":     {authzen.CapabilityRequest{}, response},
	"CapabilityResponse":    {authzen.CapabilityResponse{}, response},
	"CapabilitySubmission":  {authzen.CapabilitySubmission{}, response},
	"Introspection":         {authzen.Introspection{}, response},
	"IntrospectionRequest":  {authzen.IntrospectionRequest{}, response},
	"Action":                {authzen.Action{}, request},
	"ActionSearchRequest":   {authzen.ActionSearchRequest{}, request},
	"ActionSearchResponse":  {authzen.ActionSearchResponse{}, response},
	"Approval":              {authzen.Approval{}, response},
	"ApprovalRequest":       {authzen.ApprovalRequest{}, request},
	"ApprovalTerms":         {authzen.ApprovalTerms{}, request},
	"AuthorizeRequest":      {authzen.AuthorizeRequest{}, request},
	"AuthorizeResponse":     {authzen.AuthorizeResponse{}, response},
	"Callback":              {authzen.Callback{}, request},
	"Cancellation":          {authzen.Cancellation{}, request},
	"Decision":              {authzen.Decision{}, response},
	"Denial":                {authzen.Denial{}, request},
	"Entity":                {authzen.Entity{}, request},
	"EntitySearchResponse":  {authzen.EntitySearchResponse{}, response},
	"Error":                 {authzen.Error{}, response},
	"ErrorResponse":         {authzen.ErrorResponse{}, response},
	"EvaluationRequest":     {authzen.EvaluationRequest{}, request},
	"EvaluationsItem":       {authzen.EvaluationRequest{}, partial},
	"EvaluationsRequest":    {authzen.EvaluationsRequest{}, request},
	"EvaluationsResponse":   {authzen.EvaluationsResponse{}, response},
	"FoundAction":           {authzen.FoundAction{}, response},
	"FoundEntity":           {authzen.FoundEntity{}, response},
	"Metadata":              {authzen.Metadata{}, response},
	"Obligation":            {authzen.Obligation{}, response},
	"Page":                  {authzen.Page{}, response},
	"PageRequest":           {authzen.PageRequest{}, partial},
	"PartialAction":         {authzen.Action{}, partial},
	"PartialEntity":         {authzen.Entity{}, partial},
	"Problem":               {authzen.Problem{}, response},
	"CapabilityProblem":     {authzen.CapabilityProblem{}, response},
	"ResourceSearchRequest": {authzen.ResourceSearchRequest{}, request},
	"ResponseAction":        {authzen.Action{}, response},
	"ResponseEntity":        {authzen.Entity{}, response},
	"Searched":              {authzen.Searched{}, request},
	"SubjectSearchRequest":  {authzen.SubjectSearchRequest{}, request},
	"Submission":            {authzen.Submission{}, request},
	"SubmissionItem":        {authzen.SubmissionItem{}, request},
	"Task":                  {authzen.Task{}, response},
	"TaskItem":              {authzen.TaskItem{}, response},
	"TaskResponse":          {authzen.TaskResponse{}, response},
	"TaskResult":            {authzen.TaskResult{}, response},
}

func TestSchemasMatchTypes(t *testing.T) {
	if diff := cmp.Diff(schematest.Names(), slices.Sorted(maps.Keys(goTypes))); diff != "" {
		t.Fatalf("schemas and Go types (-schema +type):\n%s", diff)
	}
	for name, want := range goTypes {
		match(t, name, parse(t, name), reflect.TypeOf(want.value), want.role)
	}
}

func TestSchemaEnums(t *testing.T) {
	var types []any
	for _, name := range authzen.ObligationTypes() {
		types = append(types, name)
	}
	obligation := read(t, parse(t, "Obligation"))
	if diff := cmp.Diff(types, obligation.members["type"]["enum"]); diff != "" {
		t.Errorf("obligation types (-Go +schema):\n%s", diff)
	}
	semantics := []any{string(authzen.ExecuteAll), string(authzen.DenyOnFirstDeny), string(authzen.PermitOnFirstPermit), nil}
	options := read(t, read(t, parse(t, "EvaluationsRequest")).members["options"])
	if diff := cmp.Diff(semantics, options.members["evaluations_semantic"]["enum"]); diff != "" {
		t.Errorf("semantics (-Go +schema):\n%s", diff)
	}
}

// match reports where the schema and the Go type differ: in JSON type, in
// members, in which of them are required, in which may be null.
func match(t *testing.T, path string, node map[string]any, typ reflect.Type, role role) {
	t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	schema := read(t, node)
	if diff := cmp.Diff([]string{jsonType(typ)}, schema.types); diff != "" {
		t.Errorf("%s: JSON type (-Go +schema):\n%s", path, diff)
		return
	}
	switch {
	case typ == reflect.TypeFor[jsontext.Value](), typ == reflect.TypeFor[time.Time]():
	case typ.Kind() == reflect.Struct:
		matchMembers(t, path, schema, typ, role)
	case typ.Kind() == reflect.Slice:
		match(t, path+"/*", schema.items, typ.Elem(), role)
	case typ.Kind() == reflect.Map:
		match(t, path+"/*", schema.values, typ.Elem(), role)
	}
}

func matchMembers(t *testing.T, path string, schema schema, typ reflect.Type, role role) {
	t.Helper()
	fields := fieldsOf(typ)
	names := slices.Sorted(maps.Keys(fields))
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(schema.members))); diff != "" {
		t.Errorf("%s: members (-Go +schema):\n%s", path, diff)
		return
	}
	var required []string
	for _, name := range names {
		field := fields[name]
		optional := field.optional || role == partial
		if !optional {
			required = append(required, name)
		}
		member := schema.members[name]
		if got, want := read(t, member).nullable, optional && role != response; got != want {
			t.Errorf("%s/%s: nullable is %t, want %t", path, name, got, want)
		}
		match(t, path+"/"+name, member, field.typ, role)
	}
	if diff := cmp.Diff(required, schema.required, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: required (-Go +schema):\n%s", path, diff)
	}
}

type field struct {
	typ      reflect.Type
	optional bool
}

// fieldsOf returns the JSON members of a struct by name. What an embedded
// pointer brings is there only if the pointer is.
func fieldsOf(typ reflect.Type) map[string]field {
	fields := make(map[string]field)
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			maps.Copy(fields, fieldsOf(f.Type))
			continue
		}
		if f.Anonymous {
			for name, promoted := range fieldsOf(f.Type.Elem()) {
				fields[name] = field{promoted.typ, true}
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" { // it is never sent
			continue
		}
		fields[name] = field{f.Type, strings.Contains(options, "omit")}
	}
	return fields
}

func jsonType(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[time.Time]():
		return "string"
	case typ == reflect.TypeFor[jsontext.Value](), typ.Kind() == reflect.Struct, typ.Kind() == reflect.Map:
		return "object"
	case typ.Kind() == reflect.Slice:
		return "array"
	case typ.Kind() == reflect.Bool:
		return "boolean"
	case typ.Kind() == reflect.Int, typ.Kind() == reflect.Int64:
		return "integer"
	}
	return typ.Kind().String()
}

// A schema is a JSON Schema with its references followed and its alternatives
// joined: what a body may have, and what it must have in all of them.
type schema struct {
	types    []string // sorted, without null
	nullable bool
	members  map[string]map[string]any
	required []string // sorted
	items    map[string]any
	values   map[string]any
}

func read(t testing.TB, node map[string]any) schema {
	t.Helper()
	s := schema{members: make(map[string]map[string]any)}
	if ref, ok := node["$ref"].(string); ok {
		s = read(t, parse(t, strings.TrimSuffix(ref, ".json")))
	}
	for i, alternative := range elements(node["anyOf"]) {
		s.join(read(t, alternative.(map[string]any)), i == 0)
	}
	s.readTypes(node["type"])
	for _, name := range elements(node["required"]) {
		s.required = append(s.required, name.(string))
	}
	properties, _ := node["properties"].(map[string]any)
	for name, member := range properties {
		s.members[name] = member.(map[string]any)
	}
	if items, ok := node["items"].(map[string]any); ok {
		s.items = items
	}
	if values, ok := node["additionalProperties"].(map[string]any); ok {
		s.values = values
	}
	slices.Sort(s.types)
	s.types = slices.Compact(s.types)
	slices.Sort(s.required)
	return s
}

func (s *schema) readTypes(value any) {
	names := elements(value)
	if name, ok := value.(string); ok {
		names = []any{name}
	}
	for _, name := range names {
		if name == "null" {
			s.nullable = true
			continue
		}
		s.types = append(s.types, name.(string))
	}
}

func (s *schema) join(other schema, first bool) {
	if other.nullable && len(other.types) == 0 {
		s.nullable = true
		return
	}
	if first {
		s.required = other.required
	}
	s.required = slices.DeleteFunc(slices.Clone(s.required), func(name string) bool {
		return !slices.Contains(other.required, name)
	})
	s.types = append(s.types, other.types...)
	s.nullable = s.nullable || other.nullable
	maps.Copy(s.members, other.members)
}

func elements(value any) []any {
	list, _ := value.([]any)
	return list
}
