package capability

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A Capability is a stored capability. The service never changes one: a transition makes another.
type Capability struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant,omitzero"`
	Caller string `json:"caller,omitzero"` // PEP that asked for it
	Terms
	Bound         string            `json:"bound"` // BoundIdentity, BoundKey or BoundSession
	State         State             `json:"state"`
	Issuer        *authzen.Subject  `json:"issuer,omitempty"`       // who granted it; nil for the service
	Approvers     []authzen.Subject `json:"approvers,omitempty"`    // people who approved the task
	Template      string            `json:"template,omitzero"`      // of the policies that asked for approval
	Task          string            `json:"task,omitzero"`          // the Access Request that decides on it
	ApprovalIDs   []string          `json:"approval_ids,omitempty"` // approvals that it was issued with
	EvaluationIDs []string          `json:"evaluation_ids,omitempty"`
	Revision      string            `json:"revision,omitzero"` // of the policies that decided last
	Depth         int               `json:"depth,omitzero"`    // how many times it was handed on
	Created       time.Time         `json:"created"`
	DecideBy      time.Time         `json:"decide_by,omitzero"` // end of a pending one
	Issued        time.Time         `json:"issued,omitzero"`
	Ended         time.Time         `json:"ended,omitzero"`
	EndedBy       *authzen.Subject  `json:"ended_by,omitempty"`
	EndReason     string            `json:"end_reason,omitzero"`
	Idempotency   []byte            `json:"idempotency,omitzero"` // digest of tenant, caller and Idempotency-Key
	Submission    []byte            `json:"submission,omitzero"`  // digest of the terms as submitted

	// Used is the number of uses taken so far. It is not stored with the record.
	Used int `json:"-"`
}

// Terms are what a caller asks for.
type Terms struct {
	Holder      authzen.Subject  `json:"holder"`               // type and id
	Tools       []string         `json:"tools"`                // SERVER:TOOL, SERVER:* or *
	Duration    authzen.Duration `json:"duration,omitzero"`    // from the issue; 0 means until ValidUntil
	Constraints Constraints      `json:"constraints,omitzero"` // an issued one has ValidFrom and ValidUntil
	Key         *Key             `json:"key,omitempty"`        // of the holder; each use has to be proved with it
	Session     string           `json:"session,omitzero"`     // bound to it, if set; a stored one has its digest
	Reason      string           `json:"reason,omitzero"`
	Parent      string           `json:"parent,omitzero"`    // the capability that is handed on; see [Service.HandOn]
	Refreshes   string           `json:"refreshes,omitzero"` // the capability that ends with the issue; see [Service.Refresh]

	asked []byte // fingerprint of the terms before those of another capability were added; nil for the same
	proof string // id of the proof that the request has taken, or ""
}

// Constraints narrow a capability. Their names are those of the protocol.
type Constraints struct {
	MaxUses         int               `json:"maxUses,omitzero"` // 0 means unlimited
	ValidFrom       time.Time         `json:"validFrom,omitzero"`
	ValidUntil      time.Time         `json:"validUntil,omitzero"`
	Arguments       jsonobject.Object `json:"arguments,omitempty"`       // each argument must have this value
	ArgumentsSchema jsontext.Value    `json:"arguments_schema,omitzero"` // JSON Schema of all arguments
}

// To what a capability is bound.
const (
	BoundIdentity = "identity" // the holder
	BoundKey      = "key"      // the holder, and a key of it
	BoundSession  = "session"  // the holder, in one session
)

// BoundTo returns to what a capability with these terms is bound. One with a key may have a session, too.
func (t *Terms) BoundTo() string {
	switch {
	case t.Key != nil:
		return BoundKey
	case t.Session != "":
		return BoundSession
	}
	return BoundIdentity
}

// A State of a capability.
type State string

// States.
const (
	Pending   State = "pending"
	Active    State = "active"
	Expired   State = "expired"
	Exhausted State = "exhausted"
	Revoked   State = "revoked"
	Refused   State = "refused"
)

// States lists all states.
var States = []State{Pending, Active, Expired, Exhausted, Revoked, Refused}

// live reports whether a capability has not ended.
func (c *Capability) live() bool { return c.State == Pending || c.State == Active }

// limited reports whether uses are counted.
func (c *Capability) limited() bool { return c.Constraints.MaxUses > 0 }

// due returns the time at which a sweep must process the capability.
func (c *Capability) due() time.Time {
	switch c.State {
	case Pending:
		return c.DecideBy
	case Active:
		return c.Constraints.ValidUntil
	}
	kept := c.Ended.Add(retention)
	if c.State != Revoked {
		return kept
	}
	// Its revocation is listed until no token of it is valid any more.
	return latest(kept, earliest(c.Ended.Add(tokenLifetime), c.Constraints.ValidUntil))
}

// hasServer reports whether the capability covers a tool of the server.
func (c *Capability) hasServer(server string) bool {
	return slices.ContainsFunc(c.Tools, func(pattern string) bool {
		of, _ := cutTool(pattern)
		return pattern == everyTool || of == server
	})
}

// verified returns the properties of a capability that policies can read.
func (c *Capability) verified() *authzen.VerifiedCapability {
	return &authzen.VerifiedCapability{
		ID: c.ID, Issuer: c.Issuer, Template: c.Template, Approvers: c.Approvers,
		Until: c.Constraints.ValidUntil, Bound: c.Bound, Depth: c.Depth,
	}
}

// A Caller is a PEP of a tenant.
type Caller struct {
	Tenant    string
	ID        string // authenticated id; "" without authentication
	RequestID string
	AnyTool   bool // may ask for "*", all tools of all servers
}

// An Actor causes the end of a capability.
type Actor struct {
	Subject   authzen.Subject // zero for the service itself, or a PEP in the holder's stead
	Caller    string          // authenticated id of the credential; "" for none
	RequestID string
}

// A Proposal is what a pending capability waits for.
type Proposal struct {
	Task          string // the Access Request that decides on it
	Template      string
	DecideBy      time.Time // when the task ends
	EvaluationIDs []string
	Revision      string // of the policies
}

// A Grant issues a capability.
type Grant struct {
	Issuer        *authzen.Subject // who granted it; nil for the service
	Approvers     []authzen.Subject
	Task          string    // "" leaves that of the proposal
	Template      string    // "" leaves that of the proposal
	ApprovalIDs   []string  // approvals that it is issued with
	Until         time.Time // ends it earlier than its terms do, if set
	EvaluationIDs []string  // in addition to those of the proposal
	Revision      string    // of the policies
}
