package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// maxDelegations is how often the decision on one item can be handed to another person.
const maxDelegations = 3

// A Person is an entity that decides on requests.
type Person struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// A Delegation hands the decision on an item to another person. From then on nobody else can decide
// on the item.
type Delegation struct {
	From    authzen.Subject `json:"from"`
	Names   []string        `json:"names,omitempty"` // all verified names of From
	To      authzen.Subject `json:"to"`
	Comment string          `json:"comment,omitzero"`
	Time    time.Time       `json:"time"`
}

// delegate returns the person who alone may decide on the item, or nil.
func (i *Item) delegate() *authzen.Subject {
	if len(i.Delegations) == 0 {
		return nil
	}
	return &i.Delegations[len(i.Delegations)-1].To
}

// isOf reports whether a vote is of a person, by one of the verified names of the voter. It compares
// exactly, because it permits.
func (v *Vote) isOf(person *authzen.Subject) bool {
	return v.Approver.Type == person.Type && slices.Contains(v.names(), person.ID)
}

// chain returns the names of everybody who has decided on an item or handed it on, and of those who
// received it.
func (i *Item) chain() (names []string) {
	for _, d := range i.Delegations {
		names = append(names, d.From.ID, d.To.ID)
		names = append(names, d.Names...)
	}
	for _, v := range i.Votes {
		names = append(names, v.names()...)
	}
	return names
}

// checkDelegate refuses to hand items to a person who must not decide on them. Each name stands for all
// names of its person.
func (s *Service) checkDelegate(r *Request, by Approver, to authzen.Subject, items []int) error {
	is := alike(s.namesOf(to.ID))
	called := func(names []string) bool { return slices.ContainsFunc(s.namesOf(names...), is) }
	switch {
	case called(r.requesters()):
		return authzen.Invalid("/to", "is the requester, or acts for the requester")
	case called(slices.Concat([]string{by.ID}, by.Names, by.Clients)):
		return authzen.Invalid("/to", "is the approver")
	}
	for _, n := range items {
		if called(r.Items[n].chain()) {
			return authzen.Invalid("/to", "has had item %d before", n)
		}
	}
	return nil
}

// checkDelegateDecides refuses to hand items to a person whom policies would let neither approve nor deny
// them: nobody else could decide then. It says nothing to an approver who must not delegate.
func (s *Service) checkDelegateDecides(ctx context.Context, outcome *Request, by Approver, to authzen.Subject, items []int) error {
	for _, n := range items {
		item := &outcome.Items[n]
		if may, err := s.would(ctx, actionDelegate, outcome, item, by); err != nil || !may {
			return nil // the question that is recorded has the same answer
		}
		may, err := s.wouldDecide(ctx, outcome, item, to)
		if err != nil {
			return err
		}
		if !may {
			return authzen.Invalid("/to", "is no approver: policies do not let this person decide")
		}
	}
	return nil
}

// wouldDecide reports whether policies would let a person approve or deny an item, by one of the person's
// names. What the policies' schema does not allow is not permitted.
func (s *Service) wouldDecide(ctx context.Context, r *Request, i *Item, to authzen.Subject) (bool, error) {
	names := s.namesOf(to.ID)
	for _, name := range names {
		by := Approver{Subject: authzen.Subject{Type: to.Type, ID: name}, Names: names}
		for _, action := range []string{actionApprove, actionDeny} {
			if may, err := s.would(ctx, action, r, i, by); may || err != nil && !errors.Is(err, ErrUndecidable) {
				return may, err
			}
		}
	}
	return false, nil
}

// delegated hands an item on.
func (i Item) delegated(e event, now time.Time) (Item, error) {
	left := max(i.Terms.Quorum, 1) - len(i.Votes)
	switch {
	case len(i.Delegations) == maxDelegations:
		return i, fmt.Errorf("%w: it was delegated %d times", ErrTaskState, maxDelegations)
	case left > 1:
		return i, fmt.Errorf("%w: %d more people have to approve, and a delegate decides alone", ErrTaskState, left)
	}
	i.Delegations = append(slices.Clone(i.Delegations), Delegation{From: e.vote.Approver, Names: e.vote.Names, To: e.to, Comment: e.vote.Comment, Time: now})
	return i, nil
}
