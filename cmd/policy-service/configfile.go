package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// yamlFile reads flags from a YAML file: a key is a flag's name with
// underscores, and what is before a dot is a key with keys of its own. Flags win
// over the environment, and that over the file.
func yamlFile(r io.Reader) (kong.Resolver, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := yaml.UnmarshalWithOptions(text, &values, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return fileResolver(values), nil
}

type fileResolver map[string]any

func (f fileResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if slices.ContainsFunc(flag.Envs, func(name string) bool { _, set := os.LookupEnv(name); return set }) {
		return nil, nil
	}
	var value any = map[string]any(f)
	for _, key := range strings.Split(configKey(flag), ".") {
		nested, _ := value.(map[string]any)
		value = nested[key]
	}
	return value, nil
}

// Validate reports every key that is no setting.
func (f fileResolver) Validate(app *kong.Application) error {
	return unknownKeys("", f, configKeys(app))
}

// unknownKeys reports the keys below a prefix that are no settings.
func unknownKeys(prefix string, values map[string]any, known []string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		key := prefix + name
		nested, isMap := values[name].(map[string]any)
		switch {
		case slices.Contains(known, key):
		case isMap && slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, key+".") }):
			errs = append(errs, unknownKeys(key+".", nested, known))
		default:
			errs = append(errs, fmt.Errorf("configuration file: %q is not a key%s", key, nearest(key, known)))
		}
	}
	return errors.Join(errs...)
}

// configKeys lists the settings: the flags of the commands that read a
// configuration file.
func configKeys(app *kong.Application) []string {
	var keys []string
	for _, command := range app.Leaves(true) {
		if !slices.ContainsFunc(command.Flags, isConfigFile) {
			continue
		}
		for _, flag := range command.Flags {
			if !isConfigFile(flag) {
				keys = append(keys, configKey(flag))
			}
		}
	}
	return keys
}

func isConfigFile(flag *kong.Flag) bool {
	_, ok := flag.Target.Interface().(kong.ConfigFlag)
	return ok
}

func configKey(flag *kong.Flag) string { return strings.ReplaceAll(flag.Name, "-", "_") }

// nearest is the hint for a name that is not one of the known ones, or "".
func nearest(name string, known []string) string {
	best, distance := "", len(name)/2+1
	for _, candidate := range known {
		if d := levenshtein.ComputeDistance(name, candidate); d < distance {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}
