// Package result has the custom obligations that act on a call and its result:
//
//	{"action":"redact","paths":["/customer/ssn"],"with":null,"required":false}
//	{"action":"mask","pattern":"[0-9]{16}","with":"***","paths":["/note"],"required":false}
//	{"action":"max_bytes","bytes":65536}
//	{"action":"label","labels":["untrusted"]}
//	{"action":"scopes","scopes":["contacts.read"]}
//
// They are the properties of an obligation of the type custom (AuthZEN Obligations
// Profile). The policy store checks them when it loads policies, and a PEP reads
// them again before it lets the call run, so that both understand the same.
//
// A path is a JSON Pointer (RFC 6901). A token * stands for every element of an
// array and every member of an object. A pattern has the syntax of RE2.
//
// Invariant: properties with an unknown member, a missing one, or one of another
// type are an error. No obligation is carried out in part.
package result

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Values of the member action.
const (
	Redact   = "redact"    // removes or replaces members
	Mask     = "mask"      // replaces parts of texts
	MaxBytes = "max_bytes" // bounds the result
	Label    = "label"     // labels the caller
	Scopes   = "scopes"    // narrows the token with which the call reaches the server
)

// Actions lists the actions.
func Actions() []string { return []string{Redact, Mask, MaxBytes, Label, Scopes} }

// ErrAction means that properties are of another action.
var ErrAction = errors.New("the action of the obligation is not known")

// A Rule is one obligation.
type Rule struct {
	Action   string
	Paths    []Path         // of Redact, and of Mask unless it applies to all texts
	Required bool           // each of Paths must exist
	Pattern  *regexp.Regexp // of Mask
	With     jsontext.Value // replacement: a string for Mask; nil makes Redact remove
	Bytes    int            // of MaxBytes
	Labels   []string       // of Label
	Scopes   []string       // of Scopes
}

// A Path is a JSON Pointer as its tokens.
type Path []string

// Any is the token that stands for every element and member.
const Any = "*"

// Limits of an obligation.
const (
	maxPaths   = 64
	maxTokens  = 32   // of a path
	maxPattern = 1024 // bytes
	maxLabels  = 16
	maxScopes  = 64
)

// defaultMask replaces a masked part without with.
const defaultMask = `"***"`

// members are those of each action, with whether they are required.
var members = map[string]map[string]bool{
	Redact:   {"paths": true, "with": false, "required": false},
	Mask:     {"pattern": true, "with": false, "paths": false, "required": false},
	MaxBytes: {"bytes": true},
	Label:    {"labels": true},
	Scopes:   {"scopes": true},
}

// Parse reads the properties of a custom obligation. The error is [ErrAction] for
// another action.
func Parse(properties jsontext.Value) (*Rule, error) {
	var all map[string]jsontext.Value
	if err := json.Unmarshal(properties, &all); err != nil || all == nil {
		return nil, errors.New("the properties are no object")
	}
	var action string
	if err := json.Unmarshal(all["action"], &action); err != nil || members[action] == nil {
		return nil, fmt.Errorf("%w: known are %s", ErrAction, strings.Join(Actions(), ", "))
	}
	if err := checkMembers(action, all); err != nil {
		return nil, err
	}
	r := &Rule{Action: action, With: all["with"]}
	if err := r.read(all); err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return r, nil
}

// checkMembers reports members that the action does not have, and those that are
// missing.
func checkMembers(action string, all map[string]jsontext.Value) error {
	var errs []error
	for name := range all {
		if _, known := members[action][name]; !known && name != "action" {
			errs = append(errs, fmt.Errorf("%s: the member %q is not known", action, name))
		}
	}
	for name, required := range members[action] {
		if required && all[name] == nil {
			errs = append(errs, fmt.Errorf("%s: the member %q is required", action, name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// read reads the members of the action.
func (r *Rule) read(all map[string]jsontext.Value) error {
	if required := all["required"]; required != nil && json.Unmarshal(required, &r.Required) != nil {
		return errors.New("required must be true or false")
	}
	if err := r.readPaths(all["paths"]); err != nil {
		return err
	}
	switch r.Action {
	case Mask:
		return r.readMask(all["pattern"])
	case MaxBytes:
		if json.Unmarshal(all["bytes"], &r.Bytes) != nil || r.Bytes <= 0 {
			return errors.New("bytes must be a whole number from 1")
		}
	case Label:
		return r.readLabels(all["labels"])
	case Scopes:
		return r.readScopes(all["scopes"])
	}
	return nil
}

func (r *Rule) readPaths(text jsontext.Value) error {
	if text == nil {
		if r.Required {
			return errors.New("required needs paths")
		}
		return nil
	}
	paths, err := texts(text)
	if err != nil || len(paths) == 0 || len(paths) > maxPaths {
		return fmt.Errorf("paths must be a list of 1 to %d JSON Pointers", maxPaths)
	}
	for _, text := range paths {
		path, err := parsePath(text)
		if err != nil {
			return fmt.Errorf("the path %q %w", text, err)
		}
		r.Paths = append(r.Paths, path)
	}
	return nil
}

// texts reads a list of strings.
func texts(text jsontext.Value) (all []string, err error) {
	var values []*string
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	for _, value := range values {
		if value == nil {
			return nil, errors.New("null is no string")
		}
		all = append(all, *value)
	}
	return all, nil
}

// parsePath reads a JSON Pointer to something below the whole value.
func parsePath(text string) (Path, error) {
	pointer := jsontext.Pointer(text)
	switch {
	case strings.Contains(text, "{{"):
		return nil, errors.New("must not have a placeholder")
	case text == "" || !pointer.IsValid():
		return nil, errors.New("is no JSON Pointer, such as /customer/ssn")
	}
	path := Path(slices.Collect(pointer.Tokens()))
	if len(path) > maxTokens {
		return nil, fmt.Errorf("has more than %d tokens", maxTokens)
	}
	return path, nil
}

func (r *Rule) readMask(text jsontext.Value) error {
	var pattern string
	if json.Unmarshal(text, &pattern) != nil || pattern == "" || len(pattern) > maxPattern {
		return fmt.Errorf("pattern must be a text of 1 to %d bytes", maxPattern)
	}
	if strings.Contains(pattern, "{{") {
		return errors.New("pattern must not have a placeholder")
	}
	var err error
	if r.Pattern, err = regexp.Compile(pattern); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	if r.Pattern.MatchString("") {
		return errors.New("pattern must not match the empty text")
	}
	if r.With == nil {
		r.With = jsontext.Value(defaultMask)
	}
	if r.With.Kind() != '"' {
		return errors.New("with must be a text")
	}
	return nil
}

// label is the form of a label.
var label = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}$`)

func (r *Rule) readLabels(text jsontext.Value) error {
	labels, err := texts(text)
	if err != nil || len(labels) == 0 || len(labels) > maxLabels {
		return fmt.Errorf("labels must be a list of 1 to %d texts", maxLabels)
	}
	for _, text := range labels {
		if !label.MatchString(text) {
			return fmt.Errorf("the label %q must have 1 to 64 letters, digits and _.:/-, and begin with a letter or a digit", text)
		}
	}
	r.Labels = labels
	return nil
}

// scope is the form of a scope (RFC 6749, section 3.3).
var scope = regexp.MustCompile(`^[!#-\[\]-~]+$`)

func (r *Rule) readScopes(text jsontext.Value) error {
	scopes, err := texts(text)
	if err != nil || len(scopes) == 0 || len(scopes) > maxScopes {
		return fmt.Errorf("scopes must be a list of 1 to %d texts", maxScopes)
	}
	for _, text := range scopes {
		if !scope.MatchString(text) || strings.Contains(text, "{{") {
			return fmt.Errorf("the scope %q must have no spaces, quotes and placeholders", text)
		}
	}
	r.Scopes = scopes
	return nil
}
