package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/conformance/docpage"
)

const referencePage = "../../docs/reference/mcp-gateway.md"

// The page of reference has the commands and flags of the program.
func TestReferencePages(t *testing.T) {
	docpage.Check(t, referencePage, "commands", docpage.Commands(newParser(t.Context()).Model, func(*kong.Flag) bool { return false }, ""))
}

// The page of reference has a row for each key of the configuration file.
func TestReferenceHasTheKeys(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	keys := keysOf(reflect.TypeFor[gateway.Config](), "")
	if len(keys) < 40 {
		t.Fatalf("only %d keys are found", len(keys))
	}
	for _, key := range keys {
		if !strings.Contains(string(page), "\n| `"+key+"`") && !strings.Contains(string(page), ", `"+key+"`") {
			t.Errorf("%s has no row of %s", referencePage, key)
		}
	}
}

// keysOf lists the keys of a struct and of what is in it, with dots between
// them; of a map any key is NAME.
func keysOf(t reflect.Type, above string) (keys []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		if t.Kind() == reflect.Map {
			above += "NAME."
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for field := range t.Fields() {
		key, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			keys = append(keys, keysOf(field.Type, above)...)
		case key != "" && key != "-":
			below := keysOf(field.Type, above+key+".")
			if keys = append(keys, below...); below == nil {
				keys = append(keys, above+key)
			}
		}
	}
	return keys
}
