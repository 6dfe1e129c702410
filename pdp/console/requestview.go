package console

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A sheet is the sheet of a request, with the digest of its bytes.
type sheet struct {
	approval.SheetContent
	json   jsontext.Value
	digest string
}

func readSheet(text []byte) (s sheet, err error) {
	sum := sha256.Sum256(text)
	s.json, s.digest = text, "sha256:"+hex.EncodeToString(sum[:])
	if err := json.Unmarshal(text, &s.SheetContent); err != nil {
		return s, fmt.Errorf("read sheet: %w", err)
	}
	if len(s.Items) == 0 {
		return s, fmt.Errorf("read sheet: it has no item")
	}
	return s, nil
}

// at returns the value at a place of the sheet, or nil.
func (s *sheet) at(place jsontext.Pointer) jsontext.Value {
	value := s.json
	for name := range place.Tokens() {
		var members map[string]jsontext.Value
		var elements []jsontext.Value
		switch n, err := strconv.Atoi(name); {
		case value.Kind() == '{' && json.Unmarshal(value, &members) == nil:
			value = members[name]
		case value.Kind() == '[' && err == nil && json.Unmarshal(value, &elements) == nil && n >= 0 && n < len(elements):
			value = elements[n]
		default:
			return nil
		}
	}
	return value
}

// A requestPage is what the page of a request shows. All of it but the state is from the sheet.
type requestPage struct {
	Task, Digest, Short, Ticket string

	Sheet    sheet
	State    state
	Request  *request
	Warnings []warning
	Values   []leaf // what the call does: its arguments, or all that is bound
	Items    []itemView
	Says     []leaf // what the requester says
	Rest     []leaf // everything else of the sheet
	Edits    []editView
	Votes    []voteView
	Message  *message // about what was just tried
	Comment  string   // as typed
	Revealed *leaf

	CanGrant     bool // a capability can be issued beside the approval
	TellsComment bool // the requester reads the comment of a denial
	Audits       bool // the person may read the log
	Revokes      bool // the person may revoke an approval

	Notified bool   // messages tell approvers about requests
	Decided  bool   // the person has decided
	Next     string // id of the next request that waits for the person; "" for none

	SignsInAgain  bool // the person has to sign in again to approve
	NeedsProvider bool // the person could approve after a sign-in at a provider, which this session cannot have
}

// A valuesView is values on the page of a request.
type valuesView struct {
	Page   *requestPage
	Leaves []leaf
}

// plainDuration returns a duration in words: 15 minutes.
func plainDuration(d time.Duration) string {
	for _, unit := range []struct {
		of        time.Duration
		one, many string
	}{{24 * time.Hour, "day", "days"}, {time.Hour, "hour", "hours"}, {time.Minute, "minute", "minutes"}} {
		if d >= unit.of && d%unit.of == 0 {
			return plain.Count(int(d/unit.of), unit.one, unit.many)
		}
	}
	return d.String()
}

// A warning is about text that may not be what it looks like.
type warning struct {
	Where []part
	What  string
}

// An itemView is an item of a request.
type itemView struct {
	approval.SheetItem
	Index  int
	Values []leaf
	Status authzen.TaskStatus
	State  *approval.Item

	Earlier approval.Earlier
	Asking  []askingPolicy // because of which a person is asked
}

// Open reports whether the item waits for a decision.
func (i itemView) Open() bool { return i.Status == authzen.TaskPending }

// An editView is an argument that the approver may change.
type editView struct {
	Name  string
	Value string // JSON
}

// A voteView is a vote or a delegation.
type voteView struct {
	approval.Vote
	Item  int
	Mine  bool
	Index int64 // of its entry in the log; -1 if it is not known
}

// says lists the members of the context in which requesters say why.
var says = []string{"purpose", "justification", "business_justification", "reason", "display", "description"}

// newRequestPage returns the page of a request for the person who looks at it.
func newRequestPage(s sheet, r *request, who *Identity) *requestPage {
	p := &requestPage{Task: s.Task, Digest: s.digest, Short: approval.ShortSheet(s.digest), Sheet: s, Request: r}
	shown := []jsontext.Pointer{}
	take := func(at jsontext.Pointer, name string) []leaf {
		shown = append(shown, at)
		return leaves(at, name, s.at(at))
	}
	p.Values = p.callValues(take)
	for n, item := range s.Items {
		view := itemView{SheetItem: item, Index: n}
		if n < len(r.Items) {
			view.Status, view.State = r.Items[n].Status, &r.Items[n]
		}
		if n < len(r.Earlier) {
			view.Earlier = r.Earlier[n]
		}
		if n < len(r.Asking) {
			view.Asking = r.Asking[n]
		}
		at := jsontext.Pointer("/items").AppendToken(strconv.Itoa(n))
		view.Values = slices.Concat(take(at+"/action/properties", ""), take(at+"/resource/properties", item.Resource.Type), take(at+"/access", "requested access"))
		p.Items = append(p.Items, view)
	}
	for _, name := range says {
		at := jsontext.Pointer("/context").AppendToken(name)
		if !slices.Contains(shown, at) {
			p.Says = append(p.Says, take(at, name)...)
		}
	}
	p.Says = append(p.Says, take("/client", "client")...)
	p.Rest = leaves("", "", s.json, shown...)
	p.warn()
	p.Votes, p.Edits = votesOf(r, who), editsOf(&s, r)
	p.State = stateOf(s, r, p.Votes)
	p.Audits, p.Revokes = who.May(scopeAudit), slices.Contains(r.May, approval.MayRevoke)
	p.TellsComment = slices.ContainsFunc(s.Items, func(i approval.SheetItem) bool { return i.Terms.TellComment })
	p.CanGrant = !s.Bulk && max(s.Items[0].Terms.Quorum, 1) == 1 && s.Items[0].Resource.Type == "tool"
	return p
}

// callValues returns the arguments of the call if the context has them, and otherwise all bound members
// of the context.
func (p *requestPage) callValues(take func(jsontext.Pointer, string) []leaf) []leaf {
	if p.Sheet.at("/context/arguments").Kind() == '{' {
		return take("/context/arguments", "")
	}
	var values []leaf
	for _, name := range p.Sheet.Items[0].Members {
		if !slices.Contains(says, name) {
			values = append(values, take(jsontext.Pointer("/context").AppendToken(name), name)...)
		}
	}
	return values
}

// warn adds a warning for each value that has invisible characters, and for words that mix alphabets.
func (p *requestPage) warn() {
	for _, l := range slices.Concat(p.Values, p.Says, p.Rest, p.itemValues()) {
		if l.Hidden {
			p.Warnings = append(p.Warnings, warning{l.Name, "has a character that is not visible, or that moves others. It is written out."})
		}
		if words := plain.Mixed(plainly(l.Value)); len(words) > 0 {
			p.Warnings = append(p.Warnings, warning{l.Name, "has letters of two alphabets that look alike, in " + plain.Cut(strings.Join(words, ", "), 100) + "."})
		}
		if len(p.Warnings) >= mostWarnings {
			return
		}
	}
	if len(p.Sheet.Items) > 1 {
		p.Warnings = append(p.Warnings, warning{nil, fmt.Sprintf("This is about %d calls. You decide on each.", len(p.Sheet.Items))})
	}
}

const mostWarnings = 8

func (p *requestPage) itemValues() (all []leaf) {
	for _, i := range p.Items {
		all = append(all, i.Values...)
	}
	return all
}

// votesOf lists the votes on a request.
func votesOf(r *request, who *Identity) (all []voteView) {
	for n, item := range r.Items {
		for _, v := range item.Votes {
			mine := v.Approver.Type == who.Type && (v.Approver.ID == who.ID || slices.Contains(v.Names, who.ID))
			all = append(all, voteView{v, n, mine, -1})
		}
	}
	return all
}

// editsOf lists the arguments that the approver may change. A masked one cannot be.
func editsOf(s *sheet, r *request) (all []editView) {
	terms := &s.Items[0].Terms
	if s.Bulk || terms.Quorum > 1 || r.Status != authzen.TaskPending {
		return nil
	}
	for _, name := range terms.Edit {
		value := s.at(jsontext.Pointer("/context/arguments").AppendToken(name))
		if value != nil && !maskShape.Match(value) {
			all = append(all, editView{name, string(value)})
		}
	}
	return all
}

// A state is what a person can do with a request now, in one word, and what the page says about it.
type state struct {
	Name string // ready, voted, own, not_permitted, delegated, undecidable, approved, denied, cancelled, expired, partial
	Left int    // approvals that are still needed
	Need int    // approvals that are needed in all
	Last *voteView
	To   *authzen.Subject // who alone decides

	Approve, Deny, Delegate bool
	Until                   time.Time // of the request
}

// Open reports whether the person can decide.
func (s state) Open() bool { return s.Approve || s.Deny }

func stateOf(sheet sheet, r *request, votes []voteView) state {
	s := state{
		Name: string(r.Status), Until: sheet.DecideBy,
		Approve: slices.Contains(r.May, approval.MayApprove), Deny: slices.Contains(r.May, approval.MayDeny), Delegate: slices.Contains(r.May, approval.MayDelegate),
	}
	for _, item := range r.Items {
		need := max(item.Terms.Quorum, 1)
		s.Need = max(s.Need, need)
		s.Left = max(s.Left, need-len(item.Votes))
		if n := len(item.Delegations); n > 0 {
			s.To = &item.Delegations[n-1].To
		}
	}
	for i := range votes {
		if s.Last == nil || !votes[i].Time.Before(s.Last.Time) {
			s.Last = &votes[i]
		}
	}
	if r.Status == authzen.TaskPending {
		s.Name = r.WhyNot
		if s.Open() && s.Name != approval.WhyOutdated {
			s.Name = "ready"
		}
	}
	return s
}
