package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeNamesLogKeys holds that the README names every key under log: in
// the configuration file.
func TestReadmeNamesLogKeys(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for _, key := range configKeys(newParser(t.Context()).Model) {
		name, found := strings.CutPrefix(key, "log.")
		if !found {
			continue
		}
		keys++
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("the README does not name %s", key)
		}
	}
	if keys == 0 {
		t.Error("there are no keys under log: any more")
	}
}
