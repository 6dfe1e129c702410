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
// underscores, and what is before a dot is a key with keys of its own. Flags win over the environment, and that over the file.
func yamlFile(r io.Reader) (kong.Resolver, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := yaml.UnmarshalWithOptions(text, &values, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return fileResolver(dotted("", values)), nil
}

// dotted joins the keys of nested mappings.
func dotted(prefix string, values map[string]any) map[string]any {
	flat := make(map[string]any)
	for key, value := range values {
		if nested, ok := value.(map[string]any); ok {
			maps.Copy(flat, dotted(prefix+key+".", nested))
			continue
		}
		flat[prefix+key] = value
	}
	return flat
}

type fileResolver map[string]any

func (f fileResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if slices.ContainsFunc(flag.Envs, func(name string) bool { _, set := os.LookupEnv(name); return set }) {
		return nil, nil
	}
	return f[configKey(flag)], nil
}

// Validate reports every key that is no setting.
func (f fileResolver) Validate(app *kong.Application) error {
	known := configKeys(app)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(known, key) {
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
