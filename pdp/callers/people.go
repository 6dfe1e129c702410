package callers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// people are the names of persons, by each of their names.
type people map[string][]string

// newPeople reads groups of names, each of one person.
func newPeople(groups [][]string) (people, error) {
	p := people{}
	var errs []error
	for _, names := range groups {
		if len(names) < 2 {
			errs = append(errs, fmt.Errorf("%q: a person needs at least two names to be known by either", names))
		}
		for _, name := range names {
			switch {
			case name == "":
				errs = append(errs, fmt.Errorf("%q: a name is empty", names))
			case p[name] != nil:
				errs = append(errs, fmt.Errorf("%q is there twice: list all names of a person once, in one place", name))
			}
			p[name] = names
		}
	}
	return p, errors.Join(errs...)
}

// named returns a check whose callers have all names that are known of them.
func (p people) named(of check) check {
	return func(r *http.Request) (Caller, bool, error) {
		who, ok, err := of(r)
		if err != nil || !ok {
			return Caller{}, ok, err
		}
		return p.of(who), true, nil
	}
}

// of returns the caller with all names that are known of the person, each once.
func (p people) of(who Caller) Caller {
	who.Names, who.Clients = p.all(who.Names), p.all(who.Clients)
	return who
}

// all returns the names with all others of those who have them.
func (p people) all(names []string) []string {
	for _, name := range slices.Clone(names) {
		names = append(names, p[name]...)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
