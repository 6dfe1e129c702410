package audit

import (
	"strings"
	"time"
)

// A Kind says what a record is of.
type Kind string

const (
	Intent  Kind = "intent"  // the call will be forwarded
	Done    Kind = "outcome" // of the intent that Call numbers
	Refused Kind = "refused" // the call was not forwarded
	Segment Kind = "segment" // the first of a segment
)

// An Outcome says how a forwarded call ended.
type Outcome string

const (
	Succeeded Outcome = "succeeded" // the server answered with a result
	Failed    Outcome = "failed"    // the server answered with an error
	Unknown   Outcome = "unknown"   // the answer was lost: the call may have had its effect
)

// A Call is what is kept of a call. It has no arguments and no credentials.
type Call struct {
	Server  string `json:"server,omitzero"`
	Method  string `json:"method,omitzero"`
	Tool    string `json:"tool,omitzero"`    // or what else the call names
	Subject string `json:"subject,omitzero"` // type::id
	Agent   string `json:"agent,omitzero"`
	Tenant  string `json:"tenant,omitzero"`
	// Decisions are the Decision-IDs of the PDP's answers.
	Decisions  []string `json:"decisions,omitempty"`
	TraceID    string   `json:"trace_id,omitzero"`
	ArgsDigest string   `json:"args_digest,omitzero"`
	Definition string   `json:"definition,omitzero"` // digest of the tool's
	Task       string   `json:"task,omitzero"`       // of the approval that was asked for; of several, with a space between
	Approval   string   `json:"approval,omitzero"`   // that the call was carried out by, or several
}

// A Record is a line of the trail.
type Record struct {
	Seq  uint64    `json:"seq"` // from 1, no gaps
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	Call
	Of      uint64   `json:"of,omitzero"` // the intent that an outcome is of
	Outcome Outcome  `json:"outcome,omitzero"`
	Reason  string   `json:"reason,omitzero"` // a code: why it was refused, or failed
	Open    []Record `json:"open,omitempty"`  // of a segment: the intents without an outcome
	Prev    string   `json:"prev,omitzero"`   // SHA-256 of the line before; none for the first
}

// maxText is how long a text of a record may be, in bytes. The names are what
// clients send.
const maxText = 512

// bounded returns the call with what is too long cut off, as text.
func (c Call) bounded() Call {
	for _, text := range []*string{&c.Server, &c.Method, &c.Tool, &c.Subject, &c.Agent, &c.Tenant, &c.TraceID, &c.ArgsDigest, &c.Definition, &c.Task, &c.Approval} {
		if len(*text) > maxText {
			*text = (*text)[:maxText] + "…"
		}
		*text = strings.ToValidUTF8(*text, "\uFFFD")
	}
	return c
}
