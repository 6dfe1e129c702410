package approval

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Approver is who decides: the entity that policies are asked about, and
// every verified name of the person, who may have several credentials.
type Approver struct {
	authzen.Subject
	Caller  string // the credential's, by which the decision log knows who acts; "" where callers are not known
	Names   []string
	Clients []string // that the approver acts through, which others may share: they are not the requester's

	RequestID, TraceID string // of the HTTP request in which the approver acts; "" for none
}

// A Check asks policies whether an approver may decide about an Access Request.
type Check struct {
	Tenant  string
	Caller  string // the credential's that acts, for the decision log
	Request *authzen.EvaluationRequest

	RequestID, TraceID string // of the HTTP request in which the approver acts; "" for none
}

// vote returns what the approver says, as yet undecided.
func (a Approver) vote() Vote {
	return Vote{Approver: authzen.Subject{Type: a.Type, ID: a.ID}, Names: beside(a.ID, a.Names), Channel: channelAdmin}
}

// beside returns the names that there are beside an id.
func beside(id string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == id })
}

// by reports whether a vote is of a person with one of those names, of whatever
// type: types have aliases.
func (v *Vote) by(names []string) bool {
	return slices.ContainsFunc(v.names(), alike(names))
}

// names are all of who votes.
func (v *Vote) names() []string { return append([]string{v.Approver.ID}, v.Names...) }

// involves reports whether a person with one of those names is who asked, or who
// acted, of whatever type.
func (r *Request) involves(names []string) bool {
	is := alike(names)
	return is(r.Subject.ID) || is(r.Caller) || slices.ContainsFunc(r.CallerNames, is) ||
		slices.ContainsFunc(r.Actors, func(a Actor) bool { return is(a.ID) || is(a.Full()) })
}

// alike returns whether a name may be one of those, spelled otherwise. It is to
// refuse by, and never to permit by: ids are exact.
func alike(names []string) func(string) bool {
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[folded(name)] = name != ""
	}
	return func(name string) bool { return name != "" && known[folded(name)] }
}

// folded is the same for spellings of a name that look alike: without
// what is invisible, compatible forms and letter case made equal (Unicode
// NFKC_Casefold), without blanks around it.
func folded(name string) string {
	compose := func(s string) string { return norm.NFKC.String(strings.Map(visible, s)) }
	// Folding may take apart what was composed, and compose what may be folded.
	return strings.TrimSpace(compose(cases.Fold().String(compose(cases.Fold().String(compose(name))))))
}

// visible drops characters that Unicode says are ignored when they are shown,
// and others without a shape: controls and formats.
func visible(r rune) rune {
	if unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Cf, unicode.Cc) && !unicode.IsSpace(r) {
		return -1
	}
	return r
}
