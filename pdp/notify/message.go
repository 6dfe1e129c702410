package notify

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An Entity is a person, an actor or a resource.
type Entity struct {
	Type string `json:"type,omitzero"`
	ID   string `json:"id"`
}

// An Announcement is an event of an Access Request.
type Announcement struct {
	Event     string    `json:"event"`  // submit, escalate, remind, delegate or end
	Task      string    `json:"task"`   // id of the request
	Status    string    `json:"status"` // of the request
	Tenant    string    `json:"tenant,omitzero"`
	Subject   Entity    `json:"subject"`
	Actors    []Entity  `json:"actors,omitempty"` // that act for the subject, nearest first
	Action    string    `json:"action"`           // of the first item
	Resource  Entity    `json:"resource"`         // of the first item
	MoreItems int       `json:"more_items,omitzero"`
	DecideBy  time.Time `json:"decide_by"`
	Sheet     string    `json:"sheet,omitzero"`       // digest of what the approver will be shown
	Arguments string    `json:"arguments,omitzero"`   // in one line, masked; "" unless the settings allow it
	DecidedBy []Entity  `json:"decided_by,omitempty"` // who have voted, when the request has ended
	Link      string    `json:"link"`
}

// A Message is what a recipient gets at once.
type Message struct {
	Announcements []Announcement
	More          int  // announcements that are not in Announcements
	Test          bool // the message has no announcement, and tests the way
}

// testText is the text of a test.
const testText = "This is a test of the notifications of policy-service. Nothing waits for you."

// single reports whether the message announces one event.
func (m *Message) single() bool { return len(m.Announcements) == 1 && m.More == 0 }

// id returns an id of the message to a recipient. It is the same for a message that is sent again.
func (m *Message) id(to string) string {
	if m.Test {
		return "test-" + rand.Text()
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", to)
	for _, a := range m.Announcements {
		fmt.Fprintf(sum, " %q %q", a.Task, a.Event)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:16])
}

// title returns the message in a line without values of a markup.
func (m *Message) title() string {
	switch {
	case m.Test:
		return "Test of notifications"
	case !m.single():
		return fmt.Sprintf("%d messages about access requests", len(m.Announcements)+m.More)
	}
	a := &m.Announcements[0]
	return fmt.Sprintf("%s: %s on %s", a.heading(), inertName(a.Action), inertName(a.Resource.ID))
}

// heading returns what the event means for the recipient.
func (a *Announcement) heading() string {
	switch a.Event {
	case approval.AnnounceEscalate:
		return "Still waits for approval"
	case approval.AnnounceRemind:
		return "Ends within the hour"
	case approval.AnnounceDelegate:
		return "Delegated to you"
	case approval.AnnounceEnd:
		return ended[authzen.TaskStatus(a.Status)]
	}
	return "Waits for approval"
}

var ended = map[authzen.TaskStatus]string{
	authzen.TaskApproved: "Approved", authzen.TaskDenied: "Denied", authzen.TaskExpired: "Expired",
	authzen.TaskCancelled: "Withdrawn", authzen.TaskPartial: "Decided in part",
}

// A markup is how a service formats a text.
type markup struct {
	bold func(string) string
	code func(string) string // of an inert value
	link func(string) string
}

// noMarkup is the markup of plain text.
var noMarkup = markup{bold: unmarked, code: unmarked, link: unmarked}

func unmarked(text string) string { return text }

// text returns the whole message.
func (m *Message) text(in markup) string {
	var out strings.Builder
	if m.Test {
		out.WriteString(testText + "\n")
	}
	for i := range m.Announcements {
		if i > 0 {
			out.WriteString("\n")
		}
		a := &m.Announcements[i]
		if len(m.Announcements) > 1 {
			fmt.Fprintf(&out, "%s\n", in.bold(a.heading()))
		}
		a.write(&out, in)
	}
	if m.More > 0 {
		fmt.Fprintf(&out, "\nand %d more: see the console.\n", m.More)
	}
	return out.String()
}

// write writes an announcement in lines.
func (a *Announcement) write(out *strings.Builder, in markup) {
	mark := in.code
	who, forWhom := a.Subject, ""
	if len(a.Actors) > 0 {
		who, forWhom = a.Actors[0], " for "+mark(a.Subject.text())
	}
	more := ""
	if a.MoreItems > 0 {
		more = fmt.Sprintf(" and %d more", a.MoreItems)
	}
	fmt.Fprintf(out, "%s requests %s on %s%s%s.\n", mark(who.text()), mark(quoted(inert(a.Action))), mark(a.Resource.text()), more, forWhom)
	if a.Arguments != "" {
		fmt.Fprintf(out, "Arguments: %s\n", mark(inertMembers(a.Arguments)))
	}
	if a.Tenant != "" {
		fmt.Fprintf(out, "Tenant: %s\n", mark(inertName(a.Tenant)))
	}
	if a.Event != approval.AnnounceEnd {
		fmt.Fprintf(out, "Decide until: %s\n", a.DecideBy.UTC().Format("2006-01-02 15:04 MST"))
	}
	for _, who := range a.DecidedBy {
		fmt.Fprintf(out, "Decided by: %s\n", mark(who.text()))
	}
	if a.Sheet != "" {
		fmt.Fprintf(out, "Sheet: %s\n", approval.ShortSheet(a.Sheet))
	}
	fmt.Fprintf(out, "%s\n", in.link(a.Link))
}

// text returns the entity as Cedar writes it.
func (e Entity) text() string {
	if e.Type == "" {
		return quoted(inert(e.ID))
	}
	return inertName(e.Type) + "::" + quoted(inert(e.ID))
}
