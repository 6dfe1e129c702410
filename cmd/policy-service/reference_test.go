package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// The pages of reference have the commands, flags and settings of the program.
func TestReferencePages(t *testing.T) {
	model := newParser(t.Context()).Model
	ofServe := settings(model)
	commands := docpage.Commands(model, func(flag *kong.Flag) bool {
		return slices.ContainsFunc(ofServe, func(f *kong.Flag) bool { return f.Name == flag.Name && f.Help == flag.Help })
	}, "All [settings](configuration.md#settings) are flags of this command.")
	docpage.Check(t, "../../docs/reference/cli.md", "commands", commands)
	docpage.Check(t, "../../docs/reference/configuration.md", "settings", settingTable(ofServe))
}

// settingTable is a table of the settings of serve.
func settingTable(flags []*kong.Flag) string {
	var rows [][]string
	for _, flag := range flags {
		initial, meaning := "", docpage.FlagHelp(flag)
		if flag.HasDefault {
			initial = "`" + flag.Default + "`"
			meaning = strings.Replace(meaning, " Default: "+flag.Default+".", "", 1) // it has a column
		}
		rows = append(rows, []string{"`" + configKey(flag) + "`", docpage.Variables(flag), initial, meaning})
	}
	return docpage.Table([]string{"key", "variable", "default", "meaning"}, rows)
}
