package snapshot

import (
	"errors"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"

	"github.com/policy-service/policy-service/evaluation/accesspolicy"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/obligations"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	// ErrNoSnapshot means that no policies have been loaded yet.
	ErrNoSnapshot = errors.New("no policies are loaded")
	// ErrTooLong means that a search or a batch cannot finish before its deadline.
	ErrTooLong = errors.New("this would take too long: ask for less at once")
)

// A Snapshot is a compiled policy store. It is immutable and safe for concurrent use.
type Snapshot struct {
	revision      string
	archive       Archive
	Settings      Settings
	Schema        *resolved.Schema // nil without one
	Shapes        shapes
	Entities      *entityStore
	entityIndexes map[cedar.EntityType]*entityIndex
	Actions       actionIndex
	Policies      policies
	SubjectTypes  map[cedar.EntityType]bool // nil without an allowlist in config.yaml
	Templates     map[string]authzen.ApprovalTemplate
	// ReadsCapability is whether a decision may depend on the capability that covers the request. Without
	// such a policy nobody needs to look for one.
	ReadsCapability bool
	// Access has a row for each rule of the access documents.
	Access          []accesspolicy.Row
	accessDocuments bool // there are any
}

// Revision returns "sha256:" and the hash of the snapshot's files.
func (s *Snapshot) Revision() string { return s.revision }

// Archive returns the files of the snapshot. Callers must not modify them.
func (s *Snapshot) Archive() Archive { return s.archive }

// Size returns the number of policies and of stored entities. The schema's actions do not count.
func (s *Snapshot) Size() (policies, entities int) {
	return len(s.Policies.Ordered), s.Entities.Stored
}

// Count counts the policies in a tenant's files, or in the root for "".
func (s *Snapshot) Count(tenant string) (policies, forbids int) {
	for _, p := range s.Policies.Ordered {
		if TenantOf(p.File) == tenant {
			policies++
			if !p.Permits() {
				forbids++
			}
		}
	}
	return policies, forbids
}

// TermsOf returns the conditions and obligations of a policy, or nil if the snapshot has no policy of that id.
func (s *Snapshot) TermsOf(id string) *obligations.Terms {
	p := s.Policies.ByID[cedar.PolicyID(id)]
	if p == nil {
		return nil
	}
	return p.Terms
}

// Statement returns the text of a policy and its position.
func (s *Snapshot) Statement(p *Policy) cedarsyntax.Statement { return statementOf(s.archive, p) }
