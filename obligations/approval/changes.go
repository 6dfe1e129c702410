package approval

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Tag returns a short text that changes with the state of a request, with what a person can do with it and with
// the policies, and the tenant of the request. It is cheap to compute again, so a page can ask whether it
// still shows what is. A restart does not change it.
func (s *Service) Tag(ctx context.Context, id string, by Approver) (tag, tenant string, err error) {
	answer, _, err := s.allowedStored(ctx, by, id)
	return answer.tag, answer.tenant, err
}

// tag returns the tag of a request for a person.
func (r *Request) tag(a Allowed, revision string) string {
	digest := sha256.New()
	fmt.Fprintf(digest, "%q %q %q %v", a.May, a.WhyNot, revision, r.Escalated)
	for i := range r.Items {
		item := &r.Items[i]
		fmt.Fprintf(digest, " %q %d %d", item.Status, len(item.Votes), len(item.Delegations))
		if approved := item.Approval; approved != nil {
			fmt.Fprintf(digest, " %d %q", len(approved.Uses), approved.Ended)
		}
	}
	return hex.EncodeToString(digest.Sum(nil)[:8])
}

// ListTag returns a short text that changes with the requests and approvals of tenants and with their policies;
// nil tenants means all. Lists for a person may read the time, so it changes every half minute in any case.
func (s *Service) ListTag(tenants []string) (string, error) {
	digest := sha256.New()
	fmt.Fprintf(digest, "%d", s.now().Unix()/int64(allowedFor/time.Second))
	if tenants == nil {
		tenants = []string{everyTenant}
	}
	err := s.db.View(func(tx *bolt.Tx) error {
		for _, tenant := range tenants {
			fmt.Fprintf(digest, " %q %x %q", tenant, tx.Bucket(bucketChanges).Get(changesKey(tenant)), s.revision(tenant))
		}
		return nil
	})
	return hex.EncodeToString(digest.Sum(nil)[:8]), err
}

// Revision returns the revision of the policies that decide on a request now.
func (s *Service) Revision(r *Request) string { return s.revision(r.Tenant) }

// revision returns the revision of the policies of a tenant, or of a service without tenants.
func (s *Service) revision(tenant string) string {
	if s.config.Revision == nil {
		return ""
	}
	if tenant == everyTenant {
		tenant = ""
	}
	return s.config.Revision(tenant)
}

// changesKey returns the key of the number of changes of a tenant. A tenant's name may be empty, and a key may not.
func changesKey(tenant string) []byte { return append([]byte(tenant), 0) }

// countChange counts a change of a request of a tenant.
func (t txn) countChange(tenant string) error {
	changes := t.Bucket(bucketChanges)
	for _, name := range []string{tenant, everyTenant} {
		var count uint64
		if before := changes.Get(changesKey(name)); len(before) == 8 {
			count = binary.BigEndian.Uint64(before)
		}
		if err := changes.Put(changesKey(name), binary.BigEndian.AppendUint64(nil, count+1)); err != nil {
			return err
		}
	}
	return nil
}
