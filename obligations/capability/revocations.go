package capability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// RevocationsType is the type of signed lists of revoked capabilities. It differs from those of other
// tokens with the same keys.
const RevocationsType = "capability-revocations+jwt"

// revocationsLifetime is how long a signed list is valid.
const revocationsLifetime = 5 * time.Minute

// A revocationsClaims is the payload of a signed list.
type revocationsClaims struct {
	Issuer   string       `json:"iss"`
	Audience string       `json:"aud"` // base URL of the tenant
	IssuedAt int64        `json:"iat"`
	Expires  int64        `json:"exp"`
	Revoked  []revocation `json:"revoked"` // by id
}

// A revocation names a capability that nobody can use any more although its time is not over.
type revocation struct {
	ID string `json:"id"`
	At int64  `json:"at"` // seconds since 1970
}

// Revocations returns the signed list of the revoked capabilities of a tenant whose tokens may still be
// valid, and of those that were handed on from them. The quota of stored capabilities bounds it.
func (s *Service) Revocations(ctx context.Context, tenant string) (string, error) {
	if s.config.SignToken == nil {
		return "", errors.New("list revocations: the service has no keys")
	}
	if err := s.outbox.Settle(ctx); err != nil {
		return "", err
	}
	now := s.now()
	list, err := s.config.SignToken(RevocationsType, revocationsClaims{
		Issuer: s.config.BaseURL(""), Audience: s.config.BaseURL(tenant), IssuedAt: now.Unix(), Expires: now.Add(revocationsLifetime).Unix(),
		Revoked: s.index.revocations(tenant, now),
	})
	if err != nil {
		return "", fmt.Errorf("sign revocations: %w", err)
	}
	return list, nil
}

// revocations returns the revocations of a tenant, by id.
func (x *index) revocations(tenant string, now time.Time) []revocation {
	found := []revocation{}
	for _, e := range x.issuedUntil(tenant, now) {
		if at, revoked := x.revokedAt(e); revoked {
			found = append(found, revocation{e.ID, at.Unix()})
		}
	}
	slices.SortFunc(found, func(a, b revocation) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// issuedUntil returns the issued capabilities of a tenant whose end is after a time, in any state.
func (x *index) issuedUntil(tenant string, after time.Time) (found []*entry) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.all {
		if e.Tenant == tenant && !e.Issued.IsZero() && e.Constraints.ValidUntil.After(after) {
			found = append(found, e)
		}
	}
	return found
}

// revokedAt returns when a capability, or one from which it was handed on, was revoked.
func (x *index) revokedAt(e *entry) (at time.Time, revoked bool) {
	chain, _ := x.ancestors(e)
	for _, one := range append([]*entry{e}, chain...) {
		if one.State == Revoked && (!revoked || one.Ended.Before(at)) {
			at, revoked = one.Ended, true
		}
	}
	return at, revoked
}
