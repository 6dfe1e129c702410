package callers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// aliasIndex maps each name of a person to all names of that person.
type aliasIndex map[string][]string

// newAliasIndex indexes groups of names. Each group belongs to one person.
func newAliasIndex(groups [][]string) aliasIndex {
	p := aliasIndex{}
	for _, names := range groups {
		for _, name := range names {
			p[name] = names
		}
	}
	return p
}

// checkAliases reports all faults in groups of names.
func checkAliases(groups [][]string) error {
	var errs []error
	taken := map[string]bool{}
	for n, names := range groups {
		at := []string{"aliases", strconv.Itoa(n)}
		if len(names) < 2 {
			errs = append(errs, wrong(fmt.Sprintf("%q: a person needs at least two names to be known by either", names), at...))
		}
		for i, name := range names {
			here := append(slices.Clone(at), strconv.Itoa(i))
			switch {
			case name == "":
				errs = append(errs, wrong("a name is empty", here...))
			case taken[name]:
				errs = append(errs, wrong(fmt.Sprintf("%q is there twice: list all names of a person once, in one place", name), here...))
			}
			taken[name] = true
		}
	}
	return errors.Join(errs...)
}

// named returns a check that adds the configured names to each caller.
func (p aliasIndex) named(of check) check {
	return func(r *http.Request) (Caller, bool, error) {
		who, ok, err := of(r)
		if err != nil || !ok {
			return Caller{}, ok, err
		}
		return p.of(who), true, nil
	}
}

// of adds the configured names to a caller.
func (p aliasIndex) of(who Caller) Caller {
	who.Names, who.Clients = p.all(who.Names), p.all(who.Clients)
	return who
}

// all returns names and all other names of the same persons, without duplicates.
func (p aliasIndex) all(names []string) []string {
	every := slices.Clone(names)
	for _, name := range names {
		every = append(every, p[name]...)
	}
	return slices.Compact(slices.Sorted(slices.Values(every)))
}
