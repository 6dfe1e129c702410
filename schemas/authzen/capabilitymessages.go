package authzen

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// PathCapabilities is the path of capabilities, below the base URL of a tenant.
const PathCapabilities = "/access/v1/capabilities"

// PathIntrospect is the path at which servers look up capabilities, below [PathCapabilities].
const PathIntrospect = PathCapabilities + "/introspect"

// PathRevoked is the path of the signed list of revoked capabilities.
const PathRevoked = PathCapabilities + "/revoked"

// ProblemCapabilityDenied is the problem type of a capability that policies deny.
const ProblemCapabilityDenied = "urn:policy-service:capability:denied"

// Actions that policies decide on before a capability changes.
const (
	ActionCapabilityRequest = "capability.request" // a holder asks for one, on each tool
	ActionCapabilityIssue   = "capability.issue"   // a person grants one
	ActionCapabilityRevoke  = "capability.revoke"  // a person ends one
)

// A CapabilitySubmission asks for a capability. Every member is known: what the
// service does not understand would be a limit that it ignores.
type CapabilitySubmission struct {
	CapabilityTerms
	// Holder is the holder, if Subject hands on its capability Parent.
	Holder *Subject `json:"holder,omitempty"`
	Parent string   `json:"parent,omitzero"`
	// Refreshes is a capability of Subject that ends when the new one is issued. It excludes Parent and Holder.
	Refreshes string `json:"refreshes,omitzero"`
	// Proof proves that Subject has the key of Parent or Refreshes, for a request with the same other members, except
	// subject and session.
	Proof *CapabilityProof `json:"proof,omitempty"`
	Text  jsontext.Value   `json:"-"` // the submission as it was received
}

// CapabilityTerms are what is asked for.
type CapabilityTerms struct {
	Subject     Subject                `json:"subject"`           // the holder
	Tools       []string               `json:"tools"`             // SERVER:TOOL or SERVER:*
	Duration    int64                  `json:"duration,omitzero"` // seconds from the issue; 0 means until validUntil
	Reason      string                 `json:"reason,omitzero"`   // for those who decide
	Constraints *CapabilityConstraints `json:"constraints,omitempty"`
	Session     string                 `json:"session,omitzero"`    // session that it is bound to, if any
	HolderKey   jsontext.Value         `json:"holder_key,omitzero"` // JWK of the public key that it is bound to, if any
}

// CapabilityConstraints narrow a capability.
type CapabilityConstraints struct {
	MaxUses         MaxUses        `json:"maxUses,omitzero"`
	ValidFrom       time.Time      `json:"validFrom,omitzero"`
	ValidUntil      time.Time      `json:"validUntil,omitzero"`
	Arguments       jsontext.Value `json:"arguments,omitzero"`        // object of the values that arguments of the call must have
	ArgumentsSchema jsontext.Value `json:"arguments_schema,omitzero"` // JSON Schema of all arguments
}

// MaxUses is a number of uses. The zero value means unlimited, and JSON says so by leaving the member
// out: a 0 may mean none to its author.
type MaxUses int

// UnmarshalJSONFrom reads a number of uses other than 0.
func (m *MaxUses) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := json.UnmarshalDecode(dec, (*int)(m)); err != nil {
		return err
	}
	if *m == 0 {
		return Invalid(string(dec.StackPointer()), "must be at least 1: leave it out for no limit")
	}
	return nil
}

// UnmarshalJSONFrom reads a submission. Unknown members are invalid.
func (s *CapabilitySubmission) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	text, err := dec.ReadValue()
	if err != nil {
		return err
	}
	type plain CapabilitySubmission
	if err := json.Unmarshal(text, (*plain)(s), json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	s.Text = text.Clone()
	if s.Subject.Type == "" || s.Subject.ID == "" {
		return Invalid("/subject", "is required: the holder, with a type and an id")
	}
	return nil
}

// A CapabilityResponse answers a submission and every question about a capability.
type CapabilityResponse struct {
	Capability   Capability `json:"capability"`
	Task         *Task      `json:"task,omitempty"` // of a pending one: people decide on it
	EvaluationID string     `json:"evaluation_id,omitzero"`

	RevokedApprovals []string `json:"revoked_approvals,omitempty"` // that ended with it, for operators
}

// A Capability as its holder sees it. Its id is no secret.
type Capability struct {
	ID          string                 `json:"id"`
	Status      string                 `json:"status"` // pending, active, expired, exhausted, revoked or refused
	Holder      Subject                `json:"holder"`
	Tools       []string               `json:"tools"`
	Created     time.Time              `json:"created"`
	Duration    int64                  `json:"duration,omitzero"` // seconds, as asked for
	Expires     time.Time              `json:"expires,omitzero"`  // of an issued one
	Constraints *CapabilityConstraints `json:"constraints,omitempty"`
	Token       string                 `json:"token,omitzero"`      // signed form of an active one, a JWT; no secret either
	Bound       string                 `json:"bound"`               // identity, key or session
	HolderKey   jsontext.Value         `json:"holder_key,omitzero"` // JWK of the key that it is bound to
	JKT         string                 `json:"jkt,omitzero"`        // thumbprint (RFC 7638) of the key that it is bound to
	Parent      string                 `json:"parent,omitzero"`     // from which it was handed on
	Refreshes   string                 `json:"refreshes,omitzero"`  // whose place it takes
	Depth       int                    `json:"depth,omitzero"`      // how many times it was handed on
	Issuer      *Subject               `json:"issuer,omitempty"`
	UsesLeft    *int                   `json:"uses_left,omitempty"` // if uses are counted
	Reason      string                 `json:"reason,omitzero"`     // why it was refused or revoked

	// For operators. To them, Reason of a live capability is that of the request.
	Tenant      string    `json:"tenant,omitzero"`
	Approvers   []Subject `json:"approvers,omitempty"`
	ApprovalIDs []string  `json:"approval_ids,omitempty"` // approvals that it was issued with
	Template    string    `json:"template,omitzero"`
	Task        string    `json:"task,omitzero"`
	EndedBy     *Subject  `json:"ended_by,omitempty"`
}

// An IntrospectionRequest names a capability, by id or token. Unknown members are invalid.
type IntrospectionRequest struct {
	ID    string `json:"id,omitzero"`
	Token string `json:"token,omitzero"`
}

// UnmarshalJSONFrom reads a request. Unknown members are invalid.
func (r *IntrospectionRequest) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain IntrospectionRequest
	if err := json.UnmarshalDecode(dec, (*plain)(r), json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	if r.ID == "" && r.Token == "" {
		return Invalid("/id", "is required, or token")
	}
	return nil
}

// An Introspection says whether a capability can be used now, in the manner of RFC 7662. Of one that
// cannot be used it says nothing else.
type Introspection struct {
	Active      bool                   `json:"active"`
	ID          string                 `json:"id,omitzero"`
	Holder      *Subject               `json:"holder,omitempty"`
	Tools       []string               `json:"tools,omitempty"` // SERVER:TOOL, SERVER:* or *
	NotBefore   int64                  `json:"nbf,omitzero"`    // seconds since 1970
	Expires     int64                  `json:"exp,omitzero"`    // seconds since 1970
	UsesLeft    *int                   `json:"uses_left,omitempty"`
	Constraints *CapabilityConstraints `json:"constraints,omitempty"`
	Bound       string                 `json:"bound,omitzero"` // identity, key or session
	Issuer      *Subject               `json:"issuer,omitempty"`
	Key         *Confirmation          `json:"cnf,omitempty"` // of one that is bound to a key
}

// A Confirmation names a key (RFC 7800).
type Confirmation struct {
	JKT string `json:"jkt"` // thumbprint (RFC 7638)
}

// A CapabilityList is a page of capabilities.
type CapabilityList struct {
	Capabilities []Capability `json:"capabilities"`
	Page         *Page        `json:"page,omitempty"` // nil on the last page
}
