package pdp_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas"
)

// An openAPI validates answers against the OpenAPI document. It allows no member that the document
// does not describe.
type openAPI struct {
	document map[string]any
	compiler *jsonschema.Compiler
}

const documentURL = "https://schemas.invalid/openapi.json"

func newOpenAPI(t *testing.T) *openAPI {
	t.Helper()
	text, err := yaml.YAMLToJSON(schemas.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	document := value.(map[string]any)
	closeObjects(document["components"])
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, document); err != nil {
		t.Fatal(err)
	}
	return &openAPI{document, compiler}
}

// closeObjects makes the schemas of objects refuse unknown members.
func closeObjects(value any) {
	switch value := value.(type) {
	case map[string]any:
		if value["type"] == "object" && value["properties"] != nil && value["additionalProperties"] == nil {
			value["additionalProperties"] = false
		}
		for _, member := range value {
			closeObjects(member)
		}
	case []any:
		for _, element := range value {
			closeObjects(element)
		}
	}
}

// check validates an answer against the document's schema for its status.
func (o *openAPI) check(t *testing.T, method, path string, status int, body []byte) {
	t.Helper()
	path = parameter.ReplaceAllString(path, "{$1}")
	pointer := "#/paths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(path) + "/" + strings.ToLower(method) + "/responses/"
	response, _ := o.at(pointer + fmt.Sprint(status)).(map[string]any)
	if pointer += fmt.Sprint(status); response == nil {
		pointer = strings.TrimSuffix(pointer, fmt.Sprint(status)) + "default"
		response, _ = o.at(pointer).(map[string]any)
	}
	if reference, ok := response["$ref"].(string); ok {
		pointer = reference
		response, _ = o.at(pointer).(map[string]any)
	}
	content, _ := response["content"].(map[string]any)
	for _, media := range []string{"application/json", "application/jsonl"} {
		if content[media] == nil {
			continue
		}
		schema, err := o.compiler.Compile(documentURL + pointer + "/content/" + strings.ReplaceAll(media, "/", "~1") + "/schema")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(body) {
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
			if err == nil {
				err = schema.Validate(value)
			}
			if err != nil {
				t.Errorf("%s %s: %d is not as openapi.yaml says: %v\n%s", method, path, status, err, line)
			}
		}
	}
	if content == nil {
		t.Errorf("%s %s: openapi.yaml has no answer %d", method, path, status)
	}
}

// at returns the value at a JSON Pointer.
func (o *openAPI) at(pointer string) any {
	var value any = o.document
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
		object, _ := value.(map[string]any)
		value = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	return value
}

// parametersOf returns the query parameters of an operation.
func (o *openAPI) parametersOf(operation map[string]any) (names []string) {
	parameters, _ := operation["parameters"].([]any)
	for _, p := range parameters {
		described := o.at(p.(map[string]any)["$ref"].(string)).(map[string]any)
		if described["in"] == "query" {
			names = append(names, described["name"].(string))
		}
	}
	slices.Sort(names)
	return names
}

// Unknown members are found.
func TestOpenAPIIsClosed(t *testing.T) {
	o := newOpenAPI(t)
	schema, err := o.compiler.Compile(documentURL + "#/components/schemas/Revocation")
	if err != nil {
		t.Fatal(err)
	}
	if schema.Validate(map[string]any{"reason": "off"}) != nil || schema.Validate(map[string]any{"raison": "off"}) == nil {
		t.Error("a member that is not described passes")
	}
}

// Each admin operation that checks its query accepts exactly the parameters in the document.
func TestAdminParametersAreDescribed(t *testing.T) {
	o, d := newOpenAPI(t), newDesks(t)
	checked := 0
	for _, route := range adminRoutes {
		if route.method != http.MethodGet || route.scopes == nil || strings.Contains(route.path, ":") {
			continue
		}
		code, body := d.ask(route.method, route.path+"?qqqqqqqqqqqqqqqq=1", d.key("all", route.scopes[0]), "")
		var answer struct {
			Message string `json:"message"`
		}
		if err := json.Unmarshal(body, &answer); code != 400 || err != nil {
			continue // does not check its query
		}
		_, list, found := strings.Cut(answer.Message, "there are ")
		if !found {
			continue
		}
		checked++
		known := strings.Split(list, ", ")
		slices.Sort(known)
		operation := o.at("#/paths/" + strings.ReplaceAll(route.path, "/", "~1") + "/get").(map[string]any)
		if diff := cmp.Diff(o.parametersOf(operation), known); diff != "" {
			t.Errorf("%s: parameters (-openapi.yaml +listener):\n%s", route.path, diff)
		}
	}
	checks := []string{pdp.PathLogExport, pdp.PathLogQuery, pdp.PathLogStream, pdp.PathReload, pdp.PathRequests, pdp.PathApprovals, pdp.PathCapabilities, pdp.PathRevisions, pdp.PathTests, pdp.PathTry}
	if checked != len(checks) {
		t.Errorf("%d operations were checked, want those of %s", checked, checks)
	}
}

// The schemas of admin requests have exactly the members that the handlers decode.
func TestAdminRequestsAreDescribed(t *testing.T) {
	o := newOpenAPI(t)
	for name, is := range map[string]reflect.Type{
		"Verdict": reflect.TypeFor[pdp.Vote](), "Revocation": reflect.TypeFor[pdp.Revocation](), "Approver": reflect.TypeFor[pdp.Approver](),
		"Try": reflect.TypeFor[pdp.Try](), "CapabilityGrant": reflect.TypeFor[pdp.CapabilityGrant](), "CapabilityRevocation": reflect.TypeFor[pdp.CapabilityRevocation](),
	} {
		properties := o.at("#/components/schemas/" + name + "/properties").(map[string]any)
		want := membersOf(is)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(properties))); diff != "" {
			t.Errorf("%s: members (-Go +openapi.yaml):\n%s", name, diff)
		}
	}
}

// membersOf returns the JSON names of a struct's fields.
func membersOf(is reflect.Type) (names []string) {
	for field := range is.Fields() {
		if field.Anonymous {
			names = append(names, membersOf(field.Type)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
