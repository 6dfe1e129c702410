package yamldoc

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// A SettingError is a fault of a setting that its consumer found. It names the setting by its keys.
type SettingError struct {
	Path   []string // keys, and indexes of list elements
	Reason string   // what the setting must be
	// At is the path of the setting that makes a missing one required. nil means Path.
	At []string
}

func (e *SettingError) Error() string { return named(e.Path, e.Reason) }

// Below returns an error whose setting errors have path as prefix.
func Below(err error, path ...string) error {
	var all []error
	for _, leaf := range leaves(err) {
		var at *SettingError
		if !errors.As(leaf, &at) {
			at = &SettingError{Reason: leaf.Error()}
		}
		below := &SettingError{Path: slices.Concat(path, at.Path), Reason: at.Reason}
		if at.At != nil {
			below.At = slices.Concat(path, at.At)
		}
		all = append(all, below)
	}
	return errors.Join(all...)
}

// leaves returns the errors that are joined in err.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, part := range joined.Unwrap() {
		all = append(all, leaves(part)...)
	}
	return all
}

// Settings returns the faults that decoding found and those of the setting errors in err, with
// their places. For a setting that could not be decoded it returns only that fault.
func (d *Document) Settings(decoded []Fault, err error) []Fault {
	all := slices.Clone(decoded)
	for _, leaf := range leaves(err) {
		var at *SettingError
		if !errors.As(leaf, &at) {
			all = append(all, d.whole(leaf.Error()))
			continue
		}
		known := func(f Fault) bool {
			return len(at.Path) > 0 && strings.HasPrefix(f.Message, named(slices.Concat(d.path, at.Path), ""))
		}
		if !slices.ContainsFunc(decoded, known) {
			place := at.At
			if place == nil {
				place = at.Path
			}
			all = append(all, d.Fault(named(slices.Concat(d.path, at.Path), at.Reason), "", place...))
		}
	}
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return all
}
