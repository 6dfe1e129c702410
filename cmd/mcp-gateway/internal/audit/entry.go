package audit

import "strings"

// An Outcome says how a forwarded call ended.
type Outcome string

const (
	Succeeded Outcome = "succeeded" // the server answered with a result
	Failed    Outcome = "failed"    // the server answered with an error
	Unknown   Outcome = "unknown"   // the answer was lost: the call may have had its effect
)

// Events of an [Entry], besides the outcomes.
const (
	forwarded = "forwarded"
	refused   = "refused"
)

// An Entity is the subject or the resource of a call.
type Entity struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// String returns type::id.
func (e Entity) String() string { return e.Type + "::" + e.ID }

// A Call is what the trail keeps of a call. It has no arguments and no
// credentials.
type Call struct {
	Server  string // name of the upstream
	Method  string
	Tool    string // or whatever else the call names: a prompt, a URI
	Subject Entity
	Agent   string
	Tenant  string
	// Observed means that no decision on calls of the server is enforced. Reason and
	// Why then say why enforcement would refuse a call that is forwarded, and
	// NotCarriedOut are the ids of the decision's obligations.
	Observed      bool
	Reason, Why   string
	NotCarriedOut []string
	// Decisions are the Decision-IDs of the PDP's answers.
	Decisions  []string
	RequestID  string // of the gateway, the PDP's log has it, too
	TraceID    string
	ArgsDigest string
	Definition string // digest of the tool's definition
	Task       string // of the access request; several are separated by spaces
	Approval   string // that permitted the call; several are separated by spaces
	OnBehalfOf string // requester of the request that the call fulfils, TYPE::ID
	Fulfils    string // id of that request
}

// An Entry is the request of an entry of the log. The first three members are
// those of an AuthZEN request, so that filters and tables of the log find them.
type Entry struct {
	Subject    *Entity  `json:"subject,omitzero"`
	Action     *Action  `json:"action,omitzero"`
	Resource   *Entity  `json:"resource,omitzero"` // its id is SERVER:NAME, or SERVER where the call names nothing
	Event      string   `json:"event"`             // forwarded, refused, or an Outcome
	Call       string   `json:"call,omitzero"`     // id of the gateway.call that an outcome belongs to
	Reason     string   `json:"reason,omitzero"`   // code of a refusal, also of one that observe mode has not made, or of a failure
	Server     string   `json:"server,omitzero"`
	Tool       string   `json:"tool,omitzero"`
	Agent      string   `json:"agent,omitzero"`
	Decisions  []string `json:"decisions,omitempty"`
	ArgsDigest string   `json:"args_digest,omitzero"`
	Definition string   `json:"definition,omitzero"`
	Task       string   `json:"task,omitzero"`
	Approval   string   `json:"approval,omitzero"`
	OnBehalfOf string   `json:"on_behalf_of,omitzero"`
	Fulfils    string   `json:"fulfils,omitzero"`
	// Of a server in observe mode.
	Observed      bool     `json:"observed,omitzero"`
	Why           string   `json:"why,omitzero"`              // of Reason, for the operator
	NotCarriedOut []string `json:"not_carried_out,omitempty"` // ids of obligations
}

// An Action is the method of a call.
type Action struct {
	Name string `json:"name"`
}

// entry returns the request of an entry about the call.
func (c Call) entry(event string) Entry {
	return Entry{
		Subject: &c.Subject, Action: &Action{c.Method}, Resource: c.resource(), Event: event,
		Server: c.Server, Tool: c.Tool, Agent: c.Agent, Decisions: c.Decisions,
		ArgsDigest: c.ArgsDigest, Definition: c.Definition, Task: c.Task, Approval: c.Approval, OnBehalfOf: c.OnBehalfOf, Fulfils: c.Fulfils,
		Observed: c.Observed, Reason: c.Reason, Why: c.Why, NotCarriedOut: c.NotCarriedOut,
	}
}

// resource returns what the call is about, by the family of its method.
func (c Call) resource() *Entity {
	family, _, _ := strings.Cut(c.Method, "/")
	kind, named := map[string]string{"tools": "tool", "resources": "resource", "prompts": "prompt", "tasks": "task"}[family]
	switch {
	case c.Tool == "":
		return &Entity{"server", c.Server}
	case !named:
		kind = "target"
	}
	return &Entity{kind, c.Server + ":" + c.Tool}
}

// maxText is how long a text of an entry may be, in bytes. Clients choose the
// names.
const maxText = 512

// bounded returns the call with texts that are valid UTF-8 and not too long.
func (c Call) bounded() Call {
	for _, text := range []*string{
		&c.Server, &c.Method, &c.Tool, &c.Subject.Type, &c.Subject.ID, &c.Agent, &c.Tenant, &c.RequestID, &c.TraceID, &c.ArgsDigest, &c.Definition, &c.Task, &c.Approval, &c.OnBehalfOf, &c.Fulfils, &c.Why,
	} {
		if len(*text) > maxText {
			*text = (*text)[:maxText] + "…"
		}
		*text = strings.ToValidUTF8(*text, "\uFFFD")
	}
	return c
}
