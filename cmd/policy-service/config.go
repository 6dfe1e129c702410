package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
)

type configCmd struct {
	Show   configShowCmd   `cmd:"" help:"Print the settings of serve, and where each is set. The command takes the flags of serve."`
	Schema configSchemaCmd `cmd:"" help:"Print the JSON Schema of the configuration file."`
}

type configShowCmd struct {
	Effective bool     `help:"Print all settings, including defaults."`
	JSON      bool     `name:"json" help:"Print JSON."`
	Serve     serveCmd `embed:""`
}

// A setting is the value of a flag with which serve would run.
type setting struct {
	Key   string         `json:"key"`   // of the configuration file
	Value jsontext.Value `json:"value"` // "***" for a secret
	From  string         `json:"from"`  // FILE:LINE, a variable of the environment, a flag, or notSet
}

const notSet = "default"

// password matches the password in a URL, with the text before it.
var password = regexp.MustCompile(`(://[^/?#@\s":]*):[^/?#@\s"]*@`)

// Run prints the settings. The invalid ones have been refused before.
func (c *configShowCmd) Run(ctx *kong.Context) error {
	var file fileResolver
	if name := string(c.Serve.Config); name != "" {
		resolver, err := ctx.LoadConfig(name)
		if err != nil {
			return err
		}
		file = resolver.(fileResolver)
	}
	ofServe := settings(ctx.Model)
	shown := []setting{}
	for _, flag := range ctx.Selected().Flags {
		if !slices.ContainsFunc(ofServe, func(f *kong.Flag) bool { return f.Name == flag.Name }) {
			continue
		}
		s := setting{Key: configKey(flag), From: origin(ctx, flag, file)}
		if s.From == notSet && !c.Effective {
			continue
		}
		value, err := yaml.MarshalWithOptions(ctx.FlagValue(flag), yaml.JSON())
		if err != nil {
			return fmt.Errorf("%s: %w", s.Key, err)
		}
		s.Value = password.ReplaceAll(bytes.TrimSpace(value), []byte("$1:***@"))
		if flag.Tag.Has("secret") && flag.Target.String() != "" {
			s.Value = jsontext.Value(`"***"`)
		}
		shown = append(shown, s)
	}
	if c.JSON {
		return printJSON(shown)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, s := range shown {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.From, s.Value)
	}
	if len(shown) == 0 {
		fmt.Fprintln(os.Stderr, "nothing is set; --effective prints the defaults")
	}
	return w.Flush()
}

// origin returns where a setting is set.
func origin(ctx *kong.Context, flag *kong.Flag, file fileResolver) string {
	resolved := false
	for _, p := range ctx.Path {
		if p.Flag == flag && !p.Resolved {
			return "--" + flag.Name
		}
		resolved = resolved || p.Flag == flag
	}
	switch name := envOf(flag); {
	case name != "":
		return name
	case resolved:
		return fmt.Sprintf("%s:%d", file.name, file.line(configKey(flag)))
	}
	return notSet
}
