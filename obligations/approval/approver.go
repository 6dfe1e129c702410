package approval

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Approver identifies a person who decides: the entity in the questions to policies, and all
// verified names, because a person may have several credentials.
type Approver struct {
	authzen.Subject
	Caller  string // the credential's name in the decision log; "" if callers are not authenticated
	Names   []string
	Clients []string // names of the client that the approver uses; others may share it, so they do not identify the requester

	RequestID, TraceID string // of the approver's HTTP request, if any

	Channel string // by which way the decision comes: "" means [ChannelAdmin]
	Authn   *Authn // how the approver proved who they are; nil if unknown
	IDToken string // the token of Authn, which is kept beside the vote; "" for none
}

// A Check asks policies whether an approver may do an action to an Access Request.
type Check struct {
	Tenant  string
	Caller  string // caller in the decision log
	Request *authzen.EvaluationRequest

	RequestID, TraceID string // of the approver's HTTP request, if any
}

// vote returns a vote of the approver, without a decision.
func (a Approver) vote() Vote {
	return Vote{
		Approver: authzen.Subject{Type: a.Type, ID: a.ID}, Names: otherNames(a.ID, a.Names),
		Channel: cmp.Or(a.Channel, ChannelAdmin), Authn: a.Authn, IDToken: a.IDToken,
	}
}

// otherNames returns names without id.
func otherNames(id string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == id })
}

// by reports whether a vote is of a person with one of those names. It ignores entity types,
// because types have aliases.
func (v *Vote) by(names []string) bool {
	return slices.ContainsFunc(v.names(), alike(names))
}

// names returns all names of the voter.
func (v *Vote) names() []string { return append([]string{v.Approver.ID}, v.Names...) }

// involves reports whether one of those names is the requester's or an actor's. It ignores entity
// types.
func (r *Request) involves(names []string) bool {
	return slices.ContainsFunc(r.requesters(), alike(names))
}

// requesters returns the names of the requester, of its actors and of the PEP.
func (r *Request) requesters() []string {
	names := append([]string{r.Subject.ID, r.Caller}, r.CallerNames...)
	for _, a := range r.Actors {
		names = append(names, a.ID, a.Full())
	}
	return names
}

// namesOf returns those names and all further names of the same people.
func (s *Service) namesOf(names ...string) []string {
	if s.config.NamesOf == nil {
		return names
	}
	return slices.Concat(names, s.config.NamesOf(names))
}

// IsCalled reports whether a name may be one of the approver's, in any spelling that looks like it. Use
// it only to refuse.
func (a Approver) IsCalled(name string) bool {
	return alike(slices.Concat([]string{a.ID}, a.Names, a.Clients))(name)
}

// alike returns a function that reports whether a name may be another spelling of one of those. Use
// it only to refuse: permits need exact ids.
func alike(names []string) func(string) bool {
	known := make(map[string]bool, len(names))
	for _, name := range names {
		if name != "" {
			known[folded(name)] = true
		}
	}
	return func(name string) bool { return name != "" && known[folded(name)] }
}

// folded returns the same text for spellings of a name that look alike. It applies Unicode
// NFKC_Casefold, and drops blanks, characters without a shape of their own, and marks that belong to no
// letter. The dotted and the dotless i are i.
func folded(name string) string {
	for range 2 { // to drop a character can make letters adjacent that are composed
		name = norm.NFKC.String(strings.Map(shaped, name))
		name = norm.NFKC.String(cases.Fold().String(name)) // folding can decompose
		name = strings.Map(lettered, name)
	}
	return name
}

// shaped drops blanks and characters that would not be visible. It keeps the marks that
// [norm.NFKC] can compose.
func shaped(r rune) rune {
	if unicode.IsSpace(r) || !plain.Seen(r) && !unicode.Is(unicode.Mn, r) || ignorable(r) {
		return -1
	}
	return r
}

// lettered is shaped for composed text, in which marks of no script belong to no letter.
func lettered(r rune) rune {
	switch {
	case r == '\u0131':
		return 'i'
	case unicode.IsSpace(r) || !plain.Seen(r):
		return -1
	}
	return r
}

// ignorable reports whether Unicode ignores a character in display.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
