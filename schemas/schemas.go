// Package schemas describes every body of both listeners: one JSON Schema
// (2020-12) a file, and an OpenAPI document that says which path takes and
// gives which of them.
//
// The law it keeps: a schema says what the service does. A schema has the name
// of the Go type in schemas/authzen that is decoded from such a body or
// encoded to it, and the tests hold the two together, members and verdicts.
// Members it does not name are allowed everywhere; an optional member of a
// request may be null, which counts as absent.
//
//	EvaluationRequest.json    a schema; it names others as "Entity.json"
//	admin/*.json              schemas of the admin API. Its answers have no
//	                          other members, and its requests must not either
//	store/*.json              schemas of what people write in a policy store
//	openapi.yaml              the paths; components/schemas repeats the files,
//	                          written by go test ./schemas -update
//	schematest/               holds bodies against the schemas in tests
//	authzen/                  the Go types
//
// A new body is a new file, and a new path in openapi.yaml that refers to it.
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

// OpenAPI returns the OpenAPI 3.1 description of both listeners, in YAML.
// It refers to nothing outside itself.
func OpenAPI() []byte {
	return []byte(openAPI)
}

// StoreSchema returns the schema of the YAML files of a policy store: "config" of
// config.yaml, "tests" of tests/*.yaml.
func StoreSchema(name string) ([]byte, error) {
	schema, err := store.ReadFile("store/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema of policy stores is called %q", name)
	}
	return schema, nil
}
