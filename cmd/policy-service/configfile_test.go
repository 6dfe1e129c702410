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
	for _, flag := range settings(newParser(t.Context()).Model) {
		key := configKey(flag)
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
