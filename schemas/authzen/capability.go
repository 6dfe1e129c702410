package authzen

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// The engine and the capability service exchange the types of this file, except
// [CapabilityRequest], which is part of a denial.

// ErrCapabilityEnded means that a capability has no use left, or ended while a
// request used it.
var ErrCapabilityEnded = errors.New("the capability has ended")

// A CapabilityClaim is context.capability of a request. Its zero value claims
// nothing and means the capabilities that the subject holds.
type CapabilityClaim struct {
	// ID names one capability. It is no secret: only its holder can use it.
	ID string `json:"id,omitzero"`
	// Token names one, too: its signed form. It is only good for what its id is good for.
	Token string `json:"token,omitzero"`
	// Proof proves the possession of the key to which the capability is bound.
	Proof *CapabilityProof `json:"proof,omitempty"`
	// JKT is the thumbprint (RFC 7638) of the key whose possession the PEP has verified.
	JKT string `json:"jkt,omitzero"`
	// ArgumentsDigest is the digest of the arguments of the call, for a proof without context.arguments.
	ArgumentsDigest string `json:"arguments_digest,omitzero"`
	// Session is the session that the PEP has verified.
	Session string `json:"session,omitzero"`
	// Use is true for a call, which spends a use, and false for a question without
	// a call, for example to filter a list. Without it, only capabilities with
	// unlimited uses count.
	Use *bool `json:"use,omitempty"`
}

// Presents reports whether the claim presents a capability. A nil claim presents none.
func (c *CapabilityClaim) Presents() bool { return c != nil && (c.ID != "" || c.Token != "") }

// A CapabilityProof is a signature of the holder over one call. Its timestamp is a time (RFC 3339), its
// nonce has 16 to 64 visible ASCII characters, and its signature is base64url without padding.
type CapabilityProof struct {
	Timestamp string `json:"timestamp"`
	Nonce     string `json:"nonce"`
	Signature string `json:"signature"`
}

// A CapabilityQuestion asks for the capability that covers a request.
type CapabilityQuestion struct {
	EvaluationID string
	Tenant       string
	RequestID    string // the PEP's; a repetition of the same call spends no second use
	Time         time.Time
	Claim        *CapabilityClaim // nil for none
	Request      *EvaluationRequest
	// Proven has the ids of the proofs that the request of the PEP has taken: every evaluation of a batch
	// may carry the same one. Nil for a single evaluation.
	Proven map[string]bool
}

// A CapabilityStatus is the answer to a [CapabilityQuestion].
type CapabilityStatus struct {
	Capability *VerifiedCapability // nil if none covers the request
	// Denied is the reason why the capability that the claim names does not cover
	// the request. The request is then denied, whatever policies permit. It is ""
	// if the claim names none.
	Denied CapabilityReason
	// Missing is the reason why a capability of the subject for the tool does not cover the request. A
	// denial for want of a capability tells it. "" if the subject has none for the tool.
	Missing CapabilityReason
	// Consume takes a use, in memory: the log entry of the decision is its durable
	// record. It reports false for the repetition of a call, whose entry says Used
	// all the same, because the first answer may have failed. The error is
	// [ErrCapabilityEnded] if another request took the last use. Consume is nil if
	// the request spends none.
	Consume func() (taken bool, err error)
}

// A VerifiedCapability is an active capability that covers a request, as policies
// see it.
type VerifiedCapability struct {
	ID        string    `json:"id"`
	Issuer    *Subject  `json:"issuer,omitempty"` // who granted it; nil for the service
	Template  string    `json:"template,omitzero"`
	Approvers []Subject `json:"approvers,omitempty"`
	Until     time.Time `json:"until"`
	UsesLeft  int       `json:"uses_left,omitzero"` // this one included; 0 if uses are not counted
	Bound     string    `json:"bound"`              // identity, key or session
	Depth     int       `json:"depth,omitzero"`     // how many times it was handed on
	Used      bool      `json:"used,omitzero"`      // the decision spent a use, or repeated a call that did
	Call      string    `json:"call,omitzero"`      // digest of request id, tool and arguments, to recognize a repetition
	Proof     string    `json:"proof,omitzero"`     // id of the proof that the decision took, to recognize a replay
}

// A CapabilityReason tells a program why a capability does not cover a request.
type CapabilityReason string

// Reasons. A caller that does not hold the capability is always told
// CapabilityUnknown.
const (
	CapabilityUnknown          CapabilityReason = "unknown"
	CapabilityExpired          CapabilityReason = "expired"
	CapabilityNotYetValid      CapabilityReason = "not_yet_valid"
	CapabilityRevoked          CapabilityReason = "revoked"
	CapabilityExhausted        CapabilityReason = "exhausted"
	CapabilityToolNotCovered   CapabilityReason = "tool_not_covered"
	CapabilityArgumentsViolate CapabilityReason = "arguments_violate"
	CapabilityArgumentsMissing CapabilityReason = "arguments_missing"
	CapabilityWrongSession     CapabilityReason = "wrong_session"
	// CapabilityProofMissing means that the capability is bound to a key, and that nothing proves its
	// possession.
	CapabilityProofMissing CapabilityReason = "proof_missing"
	// CapabilityProofInvalid means that the proof is malformed, or that the key of the capability did not
	// sign exactly this call.
	CapabilityProofInvalid CapabilityReason = "proof_invalid"
	// CapabilityProofStale means that the timestamp of the proof is more than a minute from the present.
	CapabilityProofStale CapabilityReason = "proof_stale"
	// CapabilityReplayed means that the proof was presented before.
	CapabilityReplayed CapabilityReason = "replayed"
	// CapabilityDepth means that the capability was handed on too often.
	CapabilityDepth CapabilityReason = "depth"
	// CapabilityUseMissing means that uses are counted, and the claim does not say whether the
	// request is one.
	CapabilityUseMissing CapabilityReason = "use_missing"
)

// A CapabilityRequest tells the PEP how to ask for the capability that a denied
// request needs.
type CapabilityRequest struct {
	Endpoint string   `json:"endpoint"` // for a POST
	Tools    []string `json:"tools"`    // SERVER:TOOL
	Template string   `json:"template"` // of the policy that needs the capability
}

// ReasonCapabilityRequired is the reason of a denial that a capability would lift.
const ReasonCapabilityRequired = "capability_required"

// Tool returns the tool that a request is about, as SERVER:TOOL: the members server
// and tool of context.gateway, else the id of a resource of type tool. It reports
// false for a request that is about no tool, or one of a server whose name has a colon.
func (r *EvaluationRequest) Tool() (name string, ok bool) {
	if bytes.Contains(r.Context, []byte("gateway")) {
		var context struct {
			Gateway struct {
				Server string `json:"server"`
				Tool   string `json:"tool"`
			} `json:"gateway"`
		}
		if json.Unmarshal(r.Context, &context) == nil && context.Gateway.Server != "" && context.Gateway.Tool != "" {
			// A colon would make the name that of another server.
			return context.Gateway.Server + ":" + context.Gateway.Tool, !strings.Contains(context.Gateway.Server, ":")
		}
	}
	if r.Resource.Type == "tool" && strings.Contains(r.Resource.ID, ":") {
		return r.Resource.ID, true
	}
	return "", false
}
