// Package schemas describes every body of both listeners: one JSON Schema (2020-12) in each file,
// and an OpenAPI document with the paths that use them.
//
// Invariant: a schema describes what the service does. Its name is that of the Go type in
// schemas/authzen that decodes or encodes the body. Tests compare the members and the verdicts of
// both. Unknown members are allowed everywhere. An optional member of a request may be null, which
// means absent.
//
//	EvaluationRequest.json    a schema; it names others as "Entity.json"
//	admin/*.json              schemas of the admin API. Its answers have no
//	                          other members, and its requests must not either
//	store/*.json              schemas of files that people write in a policy store
//	openapi.yaml              the paths; components/schemas repeats the files,
//	                          written by go test ./schemas -update
//	schematest/               validates bodies against the schemas in tests
//	authzen/                  the Go types
//
// To add a body, add a file and a path in openapi.yaml that refers to it.
package schemas

import (
	"embed"
	"fmt"
)

// Files are the schemas of the bodies: those of the main listener, and below
// admin/ those of the admin API.
//
//go:embed *.json admin/*.json
var Files embed.FS

//go:embed store/*.json
var store embed.FS

//go:embed openapi.yaml
var openAPI string

// OpenAPI returns the OpenAPI 3.1 description of both listeners, in YAML. It is self-contained.
func OpenAPI() []byte {
	return []byte(openAPI)
}

// StoreSchema returns the schema of files of a policy store: "access" of access/*.json, "config" of
// config.yaml, "tests" of tests/*.yaml.
func StoreSchema(name string) ([]byte, error) {
	schema, err := store.ReadFile("store/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema of policy stores is called %q", name)
	}
	return schema, nil
}
