package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Events that people are told of. Each is announced once for a request.
const (
	AnnounceSubmit   = "submit"   // a request waits for a decision
	AnnounceEscalate = "escalate" // it has waited for long
	AnnounceRemind   = "remind"   // it ends soon
	AnnounceDelegate = "delegate" // it was delegated
	AnnounceEnd      = "end"      // it is no longer pending
)

const (
	// remindBefore is the time between the reminder and the end of a request. A request of less than
	// twice that time has no reminder.
	remindBefore = time.Hour
	// maxRecipients is the maximum number of recipients of a request.
	maxRecipients = 100
	// firstRetry is the delay after the first failed attempt. It doubles after each further one.
	firstRetry = 15 * time.Second
)

// A Recipient is a person, or a channel that several people read.
type Recipient struct {
	Way     string           `json:"way"`               // name of the service that delivers
	Address string           `json:"address,omitzero"`  // of the person; "" for a channel
	Person  *authzen.Subject `json:"person,omitempty"`  // nil for a channel
	Reached bool             `json:"reached,omitempty"` // a message was delivered
}

// destination identifies a recipient.
func (r *Recipient) destination() string { return r.Way + "\x00" + r.Address }

// names returns the names of the person.
func (r *Recipient) names() []string {
	if r.Person == nil {
		return nil
	}
	return []string{r.Person.ID, r.Address}
}

// A Message is an announcement that a recipient has not got yet.
type Message struct {
	Event    string    `json:"event"`
	To       int       `json:"to"` // index in Announcements.Recipients
	Due      time.Time `json:"due"`
	Attempts int       `json:"attempts,omitzero"`
}

// Announcements is the state of the notifications of people about a request.
type Announcements struct {
	Events     []string    `json:"events"` // that were announced
	Recipients []Recipient `json:"recipients,omitempty"`
	Messages   []Message   `json:"messages,omitempty"`
	NotBefore  time.Time   `json:"not_before,omitzero"` // of the next announcement, after a failed one
}

// clone returns a copy that shares nothing. The copy of nil is empty.
func (a *Announcements) clone() *Announcements {
	if a == nil {
		return &Announcements{}
	}
	return &Announcements{slices.Clone(a.Events), slices.Clone(a.Recipients), slices.Clone(a.Messages), a.NotBefore}
}

// count returns how often an event was announced.
func (a *Announcements) count(event string) (n int) {
	if a != nil {
		for _, announced := range a.Events {
			if announced == event {
				n++
			}
		}
	}
	return n
}

// add returns the index of a recipient, and adds it if it is new.
func (a *Announcements) add(to Recipient) int {
	i := slices.IndexFunc(a.Recipients, func(r Recipient) bool { return r.destination() == to.destination() })
	if i >= 0 {
		return i
	}
	a.Recipients = append(a.Recipients, to)
	return len(a.Recipients) - 1
}

// announcement returns the next event to announce and its time, or "".
func (r *Request) announcement() (event string, at time.Time) {
	event, at = r.nextEvent()
	if a := r.Announced; a != nil && at.Before(a.NotBefore) {
		at = a.NotBefore
	}
	return event, at
}

// nextEvent returns the next event to announce and when it happens or happened, or "".
func (r *Request) nextEvent() (event string, at time.Time) {
	a := r.Announced
	switch {
	case r.Status() != authzen.TaskPending && a.count(AnnounceSubmit) > 0 && a.count(AnnounceEnd) == 0:
		return AnnounceEnd, r.Submitted
	case r.Status() != authzen.TaskPending:
		return "", time.Time{}
	case a.count(AnnounceSubmit) == 0:
		return AnnounceSubmit, r.Submitted
	case r.delegations() > a.count(AnnounceDelegate):
		return AnnounceDelegate, r.Submitted
	case r.Escalated && a.count(AnnounceEscalate) == 0:
		return AnnounceEscalate, r.EscalateAt
	case r.DecideBy.Sub(r.Submitted) > 2*remindBefore && a.count(AnnounceRemind) == 0:
		return AnnounceRemind, r.DecideBy.Add(-remindBefore)
	}
	return "", time.Time{}
}

// delegations returns how often items of the request were delegated.
func (r *Request) delegations() (n int) {
	for _, i := range r.Items {
		n += len(i.Delegations)
	}
	return n
}

// announced returns the request after an event was announced to recipients. A message that has become
// obsolete is not sent. The end is announced to those who know of the request and have not voted.
func (r Request) announced(event string, to []Recipient, now time.Time) (Request, error) {
	next, at := r.announcement()
	if next != event || now.Before(at) {
		return r, ErrTaskState
	}
	a := r.Announced.clone()
	a.Events, a.NotBefore = append(a.Events, event), time.Time{}
	if event == AnnounceEnd {
		a.Messages, to = nil, nil
		for _, known := range a.Recipients {
			if known.Reached && !r.voted(known.names()) {
				to = append(to, known)
			}
		}
	}
	for _, recipient := range to {
		i := a.add(recipient)
		a.Messages = slices.DeleteFunc(a.Messages, func(m Message) bool { return m.To == i })
		a.Messages = append(a.Messages, Message{Event: event, To: i, Due: now})
	}
	r.Announced = a
	return r, nil
}

// voted reports whether a person with one of the names has voted on an item.
func (r *Request) voted(names []string) bool {
	return slices.ContainsFunc(r.Items, func(i Item) bool { return i.votedBy(names) })
}

func (i *Item) votedBy(names []string) bool {
	return slices.ContainsFunc(i.Votes, func(v Vote) bool { return v.by(names) })
}

// Deciders returns those whose votes decided the request, in the order of items and votes.
func (r *Request) Deciders() (all []authzen.Subject) {
	for _, i := range r.Items {
		for _, v := range i.Votes {
			counts := i.Status == authzen.TaskApproved && v.Approve || i.Status == authzen.TaskDenied && !v.Approve
			if counts && !slices.ContainsFunc(all, func(s authzen.Subject) bool { return sameEntity(s, v.Approver) }) {
				all = append(all, v.Approver)
			}
		}
	}
	return all
}

// postponed returns the request after its recipients could not be determined.
func (r Request) postponed(until time.Time) Request {
	r.Announced = r.Announced.clone()
	r.Announced.NotBefore = until
	return r
}

// delivered returns the request after an attempt to deliver a message. The message is lost after
// maxAttempts failed ones.
func (r Request) delivered(event, destination string, ok bool, now time.Time) (after Request, lost bool, err error) {
	a := r.Announced.clone()
	i := slices.IndexFunc(a.Messages, func(m Message) bool {
		return m.Event == event && a.Recipients[m.To].destination() == destination
	})
	if i < 0 {
		return r, false, ErrTaskState
	}
	m := &a.Messages[i]
	m.Attempts++
	if ok {
		a.Recipients[m.To].Reached = true
	}
	if lost = !ok && m.Attempts == maxAttempts; ok || lost {
		a.Messages = slices.Delete(a.Messages, i, i+1)
	} else {
		m.Due = now.Add(firstRetry << (m.Attempts - 1))
	}
	r.Announced = a
	return r, lost, nil
}

// An Audience is those who may decide on an item.
type Audience struct {
	Tenant string
	// Ways names the services that deliver. nil means the default ones.
	Ways []string
	// Questions ask whether a subject may decide on the item. Their subject is open.
	Questions []*authzen.EvaluationRequest
}

// recipients returns who is told of an event, at most maxRecipients, and how many others could
// decide. It excludes everybody whose vote would not count.
func (s *Service) recipients(ctx context.Context, r *Request, event string) (to []Recipient, others int, err error) {
	if event == AnnounceEnd {
		return nil, 0, nil
	}
	a := r.Announced.clone()
	known := len(a.Recipients)
	var chosen []int
	for _, n := range r.pending() {
		item := &r.Items[n]
		audience, err := r.audience(item)
		if err != nil {
			return nil, 0, err
		}
		all, err := s.config.Recipients(ctx, audience)
		if err != nil && !errors.As(err, new(*authzen.ValidationError)) {
			return nil, 0, fmt.Errorf("find those who may decide: %w", err)
		}
		for _, one := range all {
			if !r.concerns(item, &one, event) {
				continue
			}
			if i := a.add(one); !slices.Contains(chosen, i) {
				chosen = append(chosen, i)
			}
		}
	}
	for _, i := range chosen {
		if i >= max(maxRecipients, known) {
			others++
			continue
		}
		to = append(to, a.Recipients[i])
	}
	return to, others, nil
}

// audience returns those who may decide on an item.
func (r *Request) audience(item *Item) (Audience, error) {
	out := Audience{Tenant: r.Tenant, Ways: item.Terms.Notify}
	for _, action := range []string{actionApprove, actionDeny} {
		question, err := r.question(action, Approver{}, item)
		if err != nil {
			return out, err
		}
		out.Questions = append(out.Questions, question)
	}
	return out, nil
}

// concerns reports whether a recipient is told of an event of an item: a channel always, a person
// unless the vote would not count.
func (r *Request) concerns(item *Item, one *Recipient, event string) bool {
	to := item.delegate()
	if one.Person == nil {
		return true
	}
	if event == AnnounceDelegate && to == nil || to != nil && !sameEntity(*to, *one.Person) {
		return false
	}
	names := one.names()
	return !r.involves(names) && !item.votedBy(names)
}
