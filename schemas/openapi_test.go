package schemas_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/schemas"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/schematest"
)

var update = flag.Bool("update", false, "copy the JSON Schemas into openapi.yaml")

// The part of openapi.yaml behind this line is a copy.
const copied = "  schemas:\n"

func TestOpenAPIRepeatsSchemas(t *testing.T) {
	head, _, found := strings.Cut(string(schemas.OpenAPI()), "\n"+copied)
	if !found {
		t.Fatalf("openapi.yaml has no line %q", copied)
	}
	want := head + "\n" + copied
	for _, name := range append(schematest.Names(), schematest.AdminNames()...) {
		want += component(t, name)
	}
	if *update {
		if err := os.WriteFile("openapi.yaml", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(schemas.OpenAPI())); diff != "" {
		t.Errorf("openapi.yaml differs from the JSON Schemas; copy them with -update (-want +got):\n%s", diff)
	}
}

var fileReference = regexp.MustCompile(`\$ref: (\w+)\.json`)

// component returns the named schema as a member of components/schemas.
func component(t *testing.T, name string) string {
	t.Helper()
	text, err := schematest.JSONSchema(name)
	if err != nil {
		t.Fatal(err)
	}
	block, err := yaml.JSONToYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	lines := "    " + name + ":\n"
	for line := range strings.Lines(string(block)) {
		if strings.HasPrefix(line, "$schema:") {
			continue
		}
		lines += "      " + fileReference.ReplaceAllString(line, `$$ref: "#/components/schemas/$1"`)
	}
	return lines
}

func TestOpenAPIReferences(t *testing.T) {
	document := openAPI(t)
	used := make(map[string]bool)
	visit(document, func(node map[string]any) {
		ref, ok := node["$ref"].(string)
		if !ok {
			return
		}
		used[ref] = true
		if _, ok := lookup(document, ref).(map[string]any); !ok {
			t.Errorf("%s leads nowhere", ref)
		}
	})
	for kind, components := range document["components"].(map[string]any) {
		if kind == "securitySchemes" { // named, not referred to
			continue
		}
		for name := range components.(map[string]any) {
			if ref := "#/components/" + kind + "/" + name; !used[ref] {
				t.Errorf("nothing refers to %s", ref)
			}
		}
	}
}

// operations says what the document must have: the method of each path, and
// whether it gives decisions.
var operations = map[string]struct {
	method   string
	decision bool
	statuses []string // where they are not those of the others; "default" is any other, a problem
}{
	authzen.PathEvaluation:                           {"post", true, nil},
	"/tenants/{tenant}" + authzen.PathEvaluation:     {"post", true, nil},
	authzen.PathEvaluations:                          {"post", true, nil},
	"/tenants/{tenant}" + authzen.PathEvaluations:    {"post", true, nil},
	authzen.PathSearchSubject:                        {"post", true, nil},
	"/tenants/{tenant}" + authzen.PathSearchSubject:  {"post", true, nil},
	authzen.PathSearchResource:                       {"post", true, nil},
	"/tenants/{tenant}" + authzen.PathSearchResource: {"post", true, nil},
	authzen.PathSearchAction:                         {"post", true, nil},
	"/tenants/{tenant}" + authzen.PathSearchAction:   {"post", true, nil},
	authzen.PathAuthorize:                            {"post", true, nil},
	authzen.PathMetadata:                             {"get", false, nil},
	authzen.PathMetadata + "/tenants/{tenant}":       {"get", false, nil},
	"/openapi.yaml":                                  {"get", false, nil},

	authzen.PathApprovals:                                            {"post", false, []string{"201", "202", "default"}},
	authzen.PathRequests:                                             {"post", false, []string{"201", "202", "default"}},
	authzen.PathRequests + "/{id}":                                   {"get", false, []string{"200", "default"}},
	authzen.PathRequests + "/{id}/cancel":                            {"post", false, []string{"200", "default"}},
	authzen.PathRequestSchemas + "/{template}":                       {"get", false, []string{"200", "default"}},
	authzen.PathJWKS:                                                 {"get", false, []string{"200", "default"}},
	authzen.PathCapabilities:                                         {"get post", false, []string{"201", "202", "default"}}, // the statuses of the last method
	authzen.PathCapabilities + "/{id}":                               {"get", false, []string{"200", "default"}},
	authzen.PathCapabilities + "/{id}/revoke":                        {"post", false, []string{"200", "default"}},
	authzen.PathIntrospect:                                           {"post", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathIntrospect:                     {"post", false, []string{"200", "default"}},
	authzen.PathRevoked:                                              {"get", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathRevoked:                        {"get", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathCapabilities:                   {"get post", false, []string{"201", "202", "default"}},
	"/tenants/{tenant}" + authzen.PathCapabilities + "/{id}":         {"get", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathCapabilities + "/{id}/revoke":  {"post", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathRequests:                       {"post", false, []string{"201", "202", "default"}},
	"/tenants/{tenant}" + authzen.PathRequests + "/{id}":             {"get", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathRequests + "/{id}/cancel":      {"post", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathRequestSchemas + "/{template}": {"get", false, []string{"200", "default"}},
	"/tenants/{tenant}" + authzen.PathJWKS:                           {"get", false, []string{"200", "default"}},
}

func TestOpenAPIOperations(t *testing.T) {
	document := openAPI(t)
	paths := document["paths"].(map[string]any)
	maps.DeleteFunc(paths, func(_ string, item any) bool { return isAdmin(item) })
	want, got := slices.Sorted(maps.Keys(operations)), slices.Sorted(maps.Keys(paths))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("paths (-want +got):\n%s", diff)
	}
	ids := make(map[string]string)
	for path, want := range operations {
		methods := paths[path].(map[string]any)
		names := strings.Fields(want.method)
		if diff := cmp.Diff(names, slices.Sorted(maps.Keys(methods))); diff != "" {
			t.Errorf("%s: methods (-want +got):\n%s", path, diff)
			continue
		}
		for _, name := range names {
			id := methods[name].(map[string]any)["operationId"].(string)
			if other, taken := ids[id]; taken {
				t.Errorf("%s and %s are both called %q", path, other, id)
			}
			ids[id] = path
		}
		operation := methods[names[len(names)-1]].(map[string]any)
		if want.statuses == nil {
			checkStatuses(t, path, document, operation, want.decision)
		} else if diff := cmp.Diff(want.statuses, slices.Sorted(maps.Keys(operation["responses"].(map[string]any)))); diff != "" {
			t.Errorf("%s: statuses (-want +got):\n%s", path, diff)
		}
	}
}

// isAdmin reports whether a path is one of the admin listener.
func isAdmin(item any) bool { return item.(map[string]any)["servers"] != nil }

// Every operation of the admin listener says where it is, who may call it, and
// what its errors are.
func TestOpenAPIAdmin(t *testing.T) {
	ids := make(map[string]string)
	for path, item := range openAPI(t)["paths"].(map[string]any) {
		for method, value := range item.(map[string]any) {
			operation, ok := value.(map[string]any)
			if !ok {
				continue
			}
			id := operation["operationId"].(string)
			if other, taken := ids[id]; taken {
				t.Errorf("%s and %s are both called %q", path, other, id)
			}
			ids[id] = path
			if !isAdmin(item) {
				continue
			}
			if diff := cmp.Diff([]any{"Administration"}, operation["tags"]); diff != "" {
				t.Errorf("%s %s: tags (-want +got):\n%s", method, path, diff)
			}
			if operation["security"] == nil {
				t.Errorf("%s %s does not say which scope it needs", method, path)
			}
			if lookup(operation, "#/responses/default/$ref") != "#/components/responses/AdminError" {
				t.Errorf("%s %s has no default response", method, path)
			}
		}
	}
}

func TestOpenAPIStatesTheDepth(t *testing.T) {
	want := strconv.Itoa(authzen.MaxDepth) + " levels"
	if got := lookup(openAPI(t), "#/info/description").(string); !strings.Contains(got, want) {
		t.Errorf("the description does not say %q:\n%s", want, got)
	}
}

// checkStatuses holds the responses of an operation to the statuses and
// headers (AZ-45, AZ-48) that every operation of its kind has.
func checkStatuses(t *testing.T, path string, document, operation map[string]any, decision bool) {
	t.Helper()
	statuses := []string{"200", "404", "405", "500"}
	if decision {
		statuses = []string{"200", "400", "401", "403", "404", "405", "413", "429", "500", "503"}
	}
	responses := operation["responses"].(map[string]any)
	if diff := cmp.Diff(statuses, slices.Sorted(maps.Keys(responses))); diff != "" {
		t.Errorf("%s: statuses (-want +got):\n%s", path, diff)
	}
	for status, response := range responses {
		headers := []string{"X-Request-ID"}
		if status != "200" || path != "/openapi.yaml" {
			headers = append(headers, "Cache-Control")
		}
		switch {
		case status == "200" && decision:
			headers = append(headers, "Decision-ID")
		case status == "401":
			headers = append(headers, "WWW-Authenticate")
		case status == "405":
			headers = append(headers, "Allow")
		case status == "429", status == "503":
			headers = append(headers, "Retry-After")
		}
		slices.Sort(headers)
		described, _ := follow(document, response)["headers"].(map[string]any)
		if diff := cmp.Diff(headers, slices.Sorted(maps.Keys(described))); diff != "" {
			t.Errorf("%s: headers of %s (-want +got):\n%s", path, status, diff)
		}
	}
}

func TestOpenAPIExamples(t *testing.T) {
	document := openAPI(t)
	const url = "https://schemas.invalid/openapi.json"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(url, document); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for pointer, content := range contents(document) {
		schema, err := compiler.Compile(url + pointer + "/schema")
		if err != nil {
			t.Errorf("%s: %v", pointer, err)
			continue
		}
		for name, example := range examplesOf(content) {
			checked++
			if err := schema.Validate(example); err != nil {
				t.Errorf("%s: example %s: %v", pointer, name, err)
			}
		}
	}
	if checked == 0 {
		t.Error("there are no examples")
	}
}

// The examples of a request are what the decoder accepts and have an answer
// each; those of an error have the status that they stand under.
func TestOpenAPIExamplesAreReal(t *testing.T) {
	decoders := make(map[string]func([]byte) error)
	for _, r := range requests {
		decoders["#/components/schemas/"+r.schema] = r.read
	}
	document, read := openAPI(t), 0
	for _, content := range contents(document) {
		schema, _ := content["schema"].(map[string]any)["$ref"].(string)
		decode, ok := decoders[schema]
		if !ok {
			continue
		}
		for name, example := range examplesOf(content) {
			read++
			body, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			if err := decode(body); err != nil {
				t.Errorf("%s: example %s: %v", schema, name, err)
			}
		}
	}
	if read < len(requests) {
		t.Errorf("%d examples of requests for %d schemas", read, len(requests))
	}
	paths := document["paths"].(map[string]any)
	for path, described := range operations {
		names := strings.Fields(described.method)
		operation := paths[path].(map[string]any)[names[len(names)-1]].(map[string]any)
		checkAnswers(t, path, operation)
		for status, response := range operation["responses"].(map[string]any) {
			checkErrorExamples(t, status, follow(document, response))
		}
	}
}

// checkAnswers holds the names of the examples of a request against those of
// the success.
func checkAnswers(t *testing.T, path string, operation map[string]any) {
	t.Helper()
	asked, ok := lookup(operation, "#/requestBody/content/application~1json").(map[string]any)
	if !ok {
		return
	}
	answered, ok := lookup(operation, "#/responses/200/content/application~1json").(map[string]any)
	if !ok {
		return
	}
	want, got := slices.Sorted(maps.Keys(examplesOf(asked))), slices.Sorted(maps.Keys(examplesOf(answered)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: examples (-request +answer):\n%s", path, diff)
	}
}

func checkErrorExamples(t *testing.T, status string, response map[string]any) {
	t.Helper()
	if status < "400" || status == "default" {
		return
	}
	content := lookup(response, "#/content/application~1json").(map[string]any)
	for name, example := range examplesOf(content) {
		if got := lookup(example, "#/error/status"); got != json.Number(status) {
			t.Errorf("example %s stands under %s and says %v", name, status, got)
		}
	}
}

// openAPI returns the document as JSON values, its numbers as json.Number.
func openAPI(t testing.TB) map[string]any {
	t.Helper()
	text, err := yaml.YAMLToJSON(schemas.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return document.(map[string]any)
}

// contents returns every media type, parameter and header of the document:
// what has a schema and examples of it. The keys are pointers.
func contents(document map[string]any) map[string]map[string]any {
	found := make(map[string]map[string]any)
	var walk func(value any, pointer string)
	walk = func(value any, pointer string) {
		switch value := value.(type) {
		case map[string]any:
			if _, ok := value["schema"].(map[string]any); ok {
				found[pointer] = value
			}
			for name, member := range value {
				walk(member, pointer+"/"+escape.Replace(name))
			}
		case []any:
			for i, element := range value {
				walk(element, pointer+"/"+strconv.Itoa(i))
			}
		}
	}
	walk(document, "#")
	return found
}

// examplesOf returns the one example or the named examples of a content.
func examplesOf(content map[string]any) map[string]any {
	found := make(map[string]any)
	if example, ok := content["example"]; ok {
		found["example"] = example
	}
	named, _ := content["examples"].(map[string]any)
	for name, example := range named {
		found[name] = example.(map[string]any)["value"]
	}
	return found
}

// follow returns what a response is or refers to.
func follow(document map[string]any, response any) map[string]any {
	node := response.(map[string]any)
	if ref, ok := node["$ref"].(string); ok {
		node, _ = lookup(document, ref).(map[string]any)
	}
	return node
}

var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// lookup returns the value a reference within a document leads to, or nil.
func lookup(document any, ref string) any {
	pointer, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil
	}
	value := document
	for name := range strings.SplitSeq(pointer, "/") {
		object, _ := value.(map[string]any)
		value = object[unescape.Replace(name)]
	}
	return value
}
