// Package environment checks the environment variables of all programs.
//
// The law it keeps: a variable with a program's prefix that names nothing is an
// error. What it was meant to say would not be so.
package environment

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Check reports every variable of the environment, each NAME=VALUE, whose name
// begins with the prefix and is that of no flag and none of others. Variables that
// Kubernetes sets for services of that name are not ours.
func Check(app *kong.Application, prefix string, others, environment []string) error {
	known := slices.Clone(others)
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error { // it does not fail
		if flag, ok := node.(*kong.Flag); ok {
			known = append(known, flag.Envs...)
		}
		return next(nil)
	})
	orchestrated := regexp.MustCompile(`^` + prefix + `(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|^` + prefix + `(\w+_)?PORT=(tcp|udp|sctp)://`)
	var errs []error
	for _, variable := range slices.Sorted(slices.Values(environment)) {
		name, value, _ := strings.Cut(variable, "=")
		if value != "" && strings.HasPrefix(name, prefix) && !slices.Contains(known, name) && !orchestrated.MatchString(variable) {
			errs = append(errs, fmt.Errorf("the environment variable %s names no setting%s", name, Meant(name, known)))
		}
	}
	return errors.Join(errs...)
}

// UnsetEmpty unsets the variables whose names begin with the prefix and that are
// empty: they say nothing, and must not take away what a file says.
func UnsetEmpty(prefix string) error {
	var errs []error
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if value == "" && strings.HasPrefix(name, prefix) {
			errs = append(errs, os.Unsetenv(name))
		}
	}
	return errors.Join(errs...)
}

// Meant is the hint for a name that is not one of the known ones, in
// parentheses, or "".
func Meant(name string, known []string) string {
	near := yamldoc.Nearest(name, known, 3)
	if near == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", near)
}
