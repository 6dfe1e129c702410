package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const publishedSchema = "../../deploy/config.schema.json"

// verdict is that of the published schema on a configuration file.
func verdict(t *testing.T) func(text string) error {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(publishedSchema)
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		read, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(read))
		if err != nil {
			return err
		}
		return s.Validate(value)
	}
}

// The schema that is published is that of the flags.
func TestPublishedSchema(t *testing.T) {
	published, err := os.ReadFile(publishedSchema)
	if err != nil {
		t.Fatal(err)
	}
	text, err := configSchemaText(settings(newParser(t.Context()).Model))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(published, text) {
		t.Errorf("the flags have changed: policy-service config schema > deploy/config.schema.json")
	}
}

// The schema accepts the files that are shipped, and finds what is mistyped in
// them.
func TestShippedFilesHaveTheSchema(t *testing.T) {
	valid := verdict(t)
	text, err := os.ReadFile("../../deploy/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := valid(string(text)); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"listen", "sha256", "retention_age"} {
		if valid(strings.Replace(string(text), name+":", name+"s:", 1)) == nil {
			t.Errorf("%ss is not noticed", name)
		}
	}
}

// What the schema accepts, the program does. It may take more: a number that is
// written as a string.
func TestSchemaAndProgramAgree(t *testing.T) {
	valid := verdict(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	accepted := 0
	for _, flag := range settings(newParser(t.Context()).Model) {
		of := 0
		for _, value := range []string{"true", "0", "0s", "0.0h0m", "-1", "5", "1.5", "x", "90s", "36h", "strict", "json", "basic", "2026-01-01/", "[x]", "[2026-01-01/]", "{}", "{api_keys: []}", "{jwt: [{issuer: x}]}", "{jwt: [{issuer: x, audience: y, jwks_url: https://x}]}", "{api_keys: [{id: a, sha256: x}]}", "{api_keys: [{sha256: x}]}", "{mtls: {cas: x}}", "{slack: [{name: ops, url_file: x}]}", "{mail: [{name: mail, host: mail.example.com, from: a@example.com}], arguments: true}", "{slack: [{url_file: x}]}", "{issuer: https://x, client_id: x, scopes: {x: [approve]}}", "{issuer: https://x, client_id: x, scopes: {x: approve}}", "{issuer: https://x, scopes: {x: [approve]}}"} {
			text := fmt.Sprintf("%s: %s\n", configKey(flag), value)
			if group, name, found := strings.Cut(configKey(flag), "."); found {
				text = fmt.Sprintf("%s: {%s: %s}\n", group, name, value)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if valid(text) != nil {
				continue
			}
			of++
			if _, err := newParser(t.Context()).Parse([]string{"config", "show", "--config", file}); err != nil {
				t.Errorf("the schema accepts %q, the program says: %v", text, err)
			}
		}
		if of == 0 {
			t.Errorf("of %s the schema accepts nothing", configKey(flag))
		}
		accepted += of
	}
	t.Logf("%d files accepted by both", accepted)
}
