package snapshot

import (
	"bytes"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Members of context.capability, where policies read the capability that covers a request.
const (
	capabilityID        = "id"
	capabilityIssuer    = "issuer"    // only if somebody granted it
	capabilityTemplate  = "template"  // only if an approval was needed
	capabilityApprovers = "approvers" // empty if nobody approved it
	capabilityUntil     = "until"
	capabilityUsesLeft  = "uses_left" // only if uses are counted
	capabilityBound     = "bound"
	capabilityDepth     = "depth"
)

// capabilityShape maps these members to the types that a schema may declare.
var capabilityShape = factShape{
	kinds: map[string]kind{
		capabilityID:        kindString,
		capabilityIssuer:    KindEntity,
		capabilityTemplate:  kindString,
		capabilityApprovers: kindSet,
		capabilityUntil:     KindDatetime,
		capabilityUsesLeft:  kindLong,
		capabilityBound:     kindString,
		capabilityDepth:     kindLong,
	},
	sometimes: map[string]string{
		capabilityIssuer:   "only in a capability that somebody granted",
		capabilityTemplate: "only in a capability that needed an approval",
		capabilityUsesLeft: "only where uses are counted",
	},
}

// addCapability adds the capability that covers the request to the context as a fact. It omits members
// that the schema does not declare.
func (s *Snapshot) addCapability(shape *shape, c *authzen.VerifiedCapability, values cedar.RecordMap) {
	if c == nil {
		return
	}
	if declared, ok := shape.member(ContextCapability); ok {
		if record, fits := s.capability(declared, c); fits {
			values[ContextCapability] = record
		}
	}
}

// capability returns the record of a capability, with the members that the schema declares. It does not
// fit if an entity is not of the declared type.
func (s *Snapshot) capability(shape *shape, c *authzen.VerifiedCapability) (record cedar.Record, fits bool) {
	approvers, fits := s.approvers(shape, capabilityApprovers, c.Approvers)
	all := cedar.RecordMap{
		capabilityID:        cedar.String(c.ID),
		capabilityApprovers: approvers,
		capabilityUntil:     types.NewDatetime(c.Until),
		capabilityBound:     cedar.String(c.Bound),
		capabilityDepth:     cedar.Long(c.Depth),
	}
	if c.Template != "" {
		all[capabilityTemplate] = cedar.String(c.Template)
	}
	if c.UsesLeft > 0 {
		all[capabilityUsesLeft] = cedar.Long(c.UsesLeft)
	}
	if c.Issuer != nil {
		name, err := s.Settings.entityType(c.Issuer.Type)
		declared, ok := shape.member(capabilityIssuer)
		fits = fits && err == nil && !(ok && declared.OrAny().Kind == KindEntity && declared.Entity != name)
		all[capabilityIssuer] = cedar.NewEntityUID(name, cedar.String(c.Issuer.ID))
	}
	return onlyDeclared(shape, all), fits
}

// CapabilityClaim returns the capability claim of a request's context, or nil for none. Every member of
// the claim is known, so that nobody mistakes a claim for a fact.
func CapabilityClaim(context jsontext.Value) (*authzen.CapabilityClaim, error) {
	// Most requests claim none. A text search finds that without parsing. A name may have escapes.
	if !bytes.Contains(context, []byte(ContextCapability)) && !bytes.ContainsRune(context, '\\') {
		return nil, nil
	}
	var members struct {
		Capability jsontext.Value `json:"capability"`
	}
	if json.Unmarshal(context, &members) != nil || members.Capability == nil || members.Capability.Kind() == 'n' {
		return nil, nil // the reader of the context reports what is wrong with it
	}
	return readCapabilityClaim(members.Capability)
}

func readCapabilityClaim(raw jsontext.Value) (*authzen.CapabilityClaim, error) {
	var claim authzen.CapabilityClaim
	if err := json.Unmarshal(raw, &claim, json.RejectUnknownMembers(true)); err != nil {
		return nil, authzen.Invalid(below("/context", ContextCapability), "must be an object of id, proof, jkt, arguments_digest, session and use: only the service can say more")
	}
	if claim.Proof != nil && !claim.Presents() {
		return nil, authzen.Invalid(below("/context", ContextCapability), "has a proof, and no id of the capability that it is for")
	}
	return &claim, nil
}

// capabilityClaim checks the claim in a context, which policies never see.
func (r *reader) capabilityClaim() error {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return r.syntax(err)
	}
	if raw.Kind() == 'n' {
		return nil
	}
	_, err = readCapabilityClaim(raw)
	return err
}

// refuseCapability returns why a request is denied whose capability does not cover it, or "".
func refuseCapability(why authzen.CapabilityReason) string {
	if why == "" {
		return ""
	}
	return "the capability that the request presents does not cover it: " + string(why)
}

// readsCapability reports whether a policy depends on the capability of a request: it reads
// context.capability, or the context as a whole, or a denial by it offers a capability.
func (p *Policy) readsCapability() bool {
	return p.Terms.Capability != "" || slices.ContainsFunc(AttributePaths(p.Syntax), func(path AttributePath) bool {
		return path.InContext && (len(path.Names) == 0 || path.Names[0] == ContextCapability)
	})
}
