package approval

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// mostAllowed is the number of answers that the cache keeps. allowedFor is how long an answer holds at
// most: policies may read the time.
const (
	mostAllowed = 50_000
	allowedFor  = 30 * time.Second
)

// An allowedCache keeps what people can do with requests, for lists that many people look at. An answer
// holds for one revision of the policies and one state of the request. It is safe for concurrent use.
type allowedCache struct {
	seed maphash.Seed

	mu      sync.Mutex
	answers map[allowedKey]allowedAnswer
}

type allowedKey struct {
	person [sha256.Size]byte
	task   string
}

type allowedAnswer struct {
	Allowed
	tag      string // see [Service.Tag]
	tenant   string
	revision string // of the policies of the tenant
	state    uint64 // hash of the stored request
	until    time.Time
}

func newAllowedCache() *allowedCache {
	return &allowedCache{seed: maphash.MakeSeed(), answers: make(map[allowedKey]allowedAnswer)}
}

// personKey identifies a person by all that decides what the person can do.
func personKey(by Approver) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", by.Type, by.ID, by.Caller, by.Names, by.Clients))
}

// get returns an answer that still holds.
func (c *allowedCache) get(key allowedKey, stored []byte, revision func(tenant string) string, now time.Time) (a allowedAnswer, ok bool) {
	c.mu.Lock()
	answer, ok := c.answers[key]
	c.mu.Unlock()
	if !ok || !now.Before(answer.until) || answer.state != maphash.Bytes(c.seed, stored) || answer.revision != revision(answer.tenant) {
		return a, false
	}
	return answer, true
}

func (c *allowedCache) put(key allowedKey, answer allowedAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) >= mostAllowed {
		clear(c.answers)
	}
	c.answers[key] = answer
}

// decides reports whether a person can approve or deny.
func (a Allowed) decides() bool {
	return slices.Contains(a.May, MayApprove) || slices.Contains(a.May, MayDeny)
}

// allowedListed returns what the person of a query can do with a stored request, and the request. The
// request is nil if the query does not select it.
func (s *Service) allowedListed(ctx context.Context, q *Query, id string) (r *Request, a Allowed, err error) {
	answer, stored, err := s.allowedStored(ctx, *q.For, id)
	if err != nil || answer.decides() == q.Others {
		return nil, answer.Allowed, err
	}
	r, err = decodeRequest(stored)
	return r, answer.Allowed, err
}

// allowedStored returns what a person can do with a stored request, from the cache if that holds, and the request
// as it is stored.
func (s *Service) allowedStored(ctx context.Context, by Approver, id string) (answer allowedAnswer, stored []byte, err error) {
	if stored, err = s.recordedBytes(ctx, id); err != nil {
		return answer, nil, err
	}
	key, now := allowedKey{personKey(by), id}, s.now()
	if answer, known := s.allowed.get(key, stored, s.config.Revision, now); known {
		return answer, stored, nil
	}
	r, err := decodeRequest(stored)
	if err != nil {
		return answer, nil, err
	}
	answer = allowedAnswer{tenant: r.Tenant, revision: s.config.Revision(r.Tenant), state: maphash.Bytes(s.allowed.seed, stored), until: earliest(now.Add(allowedFor), r.DecideBy)}
	if answer.Allowed, err = s.Allowed(ctx, r, by); err != nil {
		return answer, nil, err
	}
	answer.tag = r.tag(answer.Allowed, answer.revision)
	s.allowed.put(key, answer)
	return answer, stored, nil
}
