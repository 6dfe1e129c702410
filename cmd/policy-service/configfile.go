package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// yamlFile reads flags from a YAML file. A key is the name of a flag with underscores;
// a name with a dot is a key below another. Flags have precedence over the
// environment, and the environment over the file.
func yamlFile(r io.Reader) (kong.Resolver, error) {
	name := "configuration file"
	if file, ok := r.(*os.File); ok {
		name = file.Name()
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	f := fileResolver{name: name}
	if f.doc, err = yamldoc.Parse(name, text); err != nil {
		return nil, err
	}
	if err := yamldoc.Errors(f.doc.Decode(&f.values)); err != nil {
		return nil, err
	}
	return f, nil
}

// A fileResolver has the values of a configuration file, and their places.
type fileResolver struct {
	name   string
	doc    *yamldoc.Document
	values map[string]any
}

// line returns the line of a setting.
func (f fileResolver) line(key string) int {
	line, _ := f.doc.Place(strings.Split(key, ".")...)
	return line
}

func (f fileResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if envOf(flag) != "" {
		return nil, nil
	}
	path := strings.Split(configKey(flag), ".")
	part := f.doc.Part(path...)
	if part == nil {
		return nil, nil
	}
	if _, is := flag.Target.Addr().Interface().(documentFlag); is {
		return part, nil
	}
	var value any = f.values
	for _, key := range path {
		nested, _ := value.(map[string]any)
		value = nested[key]
	}
	return value, nil
}

// check reports every invalid value and every unknown key, in the order of the file.
func (f fileResolver) check(app *kong.Application) error {
	var keys []string
	var faults []yamldoc.Fault
	for _, flag := range settings(app) {
		keys = append(keys, configKey(flag))
		if part := f.doc.Part(strings.Split(configKey(flag), ".")...); part != nil {
			faults = append(faults, checkValue(part, flag)...)
		}
	}
	faults = append(faults, f.unknownKeys("", f.values, keys)...)
	return yamldoc.Errors(f.doc.Settings(faults, nil))
}

// Validate implements [kong.Resolver]; check has reported everything.
func (f fileResolver) Validate(*kong.Application) error { return nil }

// unknownKeys returns the errors of unknown keys below a prefix.
func (f fileResolver) unknownKeys(prefix string, values map[string]any, known []string) (faults []yamldoc.Fault) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		key := prefix + name
		nested, isMap := values[name].(map[string]any)
		switch {
		case slices.Contains(known, key):
		case isMap && slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, key+".") }):
			faults = append(faults, f.unknownKeys(key+".", nested, known)...)
		default:
			hint := yamldoc.DidYouMean(key, known)
			if slices.Contains(snapshot.SettingsKeys(), key) {
				hint = "this key belongs to config.yaml of the policy store"
			}
			faults = append(faults, f.doc.Fault(fmt.Sprintf("%q is not a key", key), hint, strings.Split(key, ".")...))
		}
	}
	return faults
}

// settings lists the flags of serve that a configuration file may have.
func settings(app *kong.Application) []*kong.Flag {
	commands := app.Leaves(true)
	serve := commands[slices.IndexFunc(commands, func(n *kong.Node) bool { return n.Name == "serve" })]
	return slices.DeleteFunc(slices.Clone(serve.Flags), isConfigFile)
}

// envOf returns the variable of the environment that sets a flag, or "".
func envOf(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return name
		}
	}
	return ""
}

// A configFile names the file of settings.
type configFile string

// BeforeResolve reads the file. If a command has such a flag, only the flag counts: a
// variable of the environment would set the flags of all commands.
func (configFile) BeforeResolve(app *kong.Kong, ctx *kong.Context, trace *kong.Path) error {
	if command := ctx.Selected(); command != nil {
		own := slices.IndexFunc(command.Flags, isConfigFile)
		if own >= 0 && command.Flags[own] != trace.Flag {
			return nil
		}
	}
	resolver, err := app.LoadConfig(string(ctx.FlagValue(trace.Flag).(configFile)))
	if err != nil {
		return err
	}
	if err := resolver.(fileResolver).check(app.Model); err != nil {
		return err
	}
	ctx.AddResolver(resolver)
	return nil
}

func isConfigFile(flag *kong.Flag) bool {
	_, ok := flag.Target.Interface().(configFile)
	return ok
}

func configKey(flag *kong.Flag) string { return strings.ReplaceAll(flag.Name, "-", "_") }

var unknownField = regexp.MustCompile(`^unknown field "(.+)"$`)

// hintSettings adds a hint to errors of keys that belong to the configuration of the
// service and not to config.yaml of a policy store.
func hintSettings(faults faults.List) faults.List {
	keys := map[string]bool{}
	for _, flag := range settings(newParser(context.Background()).Model) {
		key, _, _ := strings.Cut(configKey(flag), ".")
		keys[key] = true
	}
	for i, fault := range faults {
		m := unknownField.FindStringSubmatch(fault.Message)
		if m != nil && path.Base(fault.File) == "config.yaml" && fault.Column == 1 && keys[m[1]] {
			faults[i].Hint = "this key belongs to the configuration of the service (serve --config)"
		}
	}
	return faults
}
