package approval

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// A Caller is a PEP of a tenant.
type Caller struct {
	Tenant    string
	ID        string   // authenticated id; "" without authentication
	Names     []string // all verified names of the caller
	RequestID string
}

// retention is how long a task is stored after its result can no longer matter.
const retention = 24 * time.Hour

// Submit accepts an Access Request and returns its task. If the Idempotency-Key has a task for the
// same submission, Submit returns that task in its current state without further checks: a retry is
// neither expired nor replayed. If a template names an auto approver, the task may already be
// decided.
func (s *Service) Submit(ctx context.Context, c Caller, key string, sub *authzen.Submission) (*authzen.TaskResponse, error) {
	r, denials, err := s.draft(c, key, sub)
	if err != nil {
		return nil, err
	}
	known, err := s.known(ctx, r)
	if err == nil && known == "" {
		known, err = s.accept(ctx, c, r, sub, denials)
	}
	if err != nil {
		return nil, err
	}
	if known == "" {
		known, err = r.ID, s.askAtOnce(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	return s.Status(ctx, c, known)
}

// known returns the task of the idempotency key of a request, or "".
func (s *Service) known(ctx context.Context, r *Request) (id string, err error) {
	if r.Idempotency == nil {
		return "", nil
	}
	err = s.view(ctx, func(tx txn) (err error) {
		id, err = tx.known(r.Idempotency, r.Submission)
		return err
	})
	return id, err
}

// accept stores a request after it has checked the proofs of its denials. If a concurrent call
// stored the same submission, it returns that task.
func (s *Service) accept(ctx context.Context, c Caller, r *Request, sub *authzen.Submission, denials []*authzen.Denial) (known string, err error) {
	proofs, err := s.validate(ctx, r, sub, denials)
	if err != nil {
		return "", err
	}
	err = s.transact(ctx, func(tx txn) (err error) {
		if known, err = tx.known(r.Idempotency, r.Submission); err != nil || known != "" {
			return err
		}
		return s.admit(tx, r, proofs, c)
	})
	return known, err
}

// draft returns the request of a submission, with no proof checked, and its denials.
func (s *Service) draft(c Caller, key string, sub *authzen.Submission) (*Request, []*authzen.Denial, error) {
	items, denials, err := itemsOf(sub)
	if err != nil {
		return nil, nil, err
	}
	actors, err := submittedActors(sub)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkCallback(sub.Callback); err != nil {
		return nil, nil, err
	}
	fingerprint, err := fingerprint(sub)
	if err != nil {
		return nil, nil, err
	}
	return &Request{
		ID: "arq_" + s.config.NewID(), Tenant: c.Tenant, Caller: c.ID, CallerNames: otherNames(c.ID, c.Names), Subject: sub.Subject, Actors: actors,
		Context: sub.Context, Access: sub.RequestedAccess, Client: sub.Client, Callback: sub.Callback,
		Submitted: s.now(), Bulk: len(sub.Items) > 0, Items: items,
		Idempotency: idempotencyKey(c, key), Submission: fingerprint,
	}, denials, nil
}

// maxItems limits the items of a submission. maxRepeated limits the bytes of the subject in the
// answer, which repeats it for every item.
const (
	maxItems    = 100
	maxRepeated = 4 << 20
)

// itemsOf returns the items of a submission and their denials.
func itemsOf(sub *authzen.Submission) (items []Item, denials []*authzen.Denial, err error) {
	switch {
	case sub.Partial:
		return nil, nil, fmt.Errorf("%w: /partial: every item is decided on its own", ErrUnsupported)
	case sub.Items != nil && len(sub.Items) == 0:
		return nil, nil, authzen.Invalid("/items", "must have an element")
	case len(sub.Items) > maxItems:
		return nil, nil, authzen.Invalid("/items", "has more than %d elements", maxItems)
	case len(sub.Items)*len(sub.Subject.Properties) > maxRepeated:
		return nil, nil, authzen.Invalid("/items", "has too many elements for a subject with so many properties: each is answered with all of them")
	case len(sub.Items) > 0 && (sub.Resource != nil || sub.Action != nil):
		return nil, nil, authzen.Invalid("", "must not have resource or action beside items")
	case len(sub.Items) == 0 && (sub.Resource == nil || sub.Action == nil):
		return nil, nil, authzen.Invalid("", "must have resource and action, or items")
	case len(sub.Items) == 0:
		return []Item{{Resource: *sub.Resource, Action: *sub.Action}}, []*authzen.Denial{sub.Denial}, nil
	}
	for _, i := range sub.Items {
		items = append(items, Item{Resource: i.Resource, Action: i.Action, Access: i.RequestedAccess})
		denials = append(denials, cmp.Or(i.Denial, sub.Denial))
	}
	return items, denials, nil
}

// idempotencyKey returns the key under which an Idempotency-Key of a caller is stored, or nil for none.
func idempotencyKey(c Caller, key string) []byte {
	if key = authzen.IdempotencyKey(key); key == "" {
		return nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Tenant, c.ID, key))
	return sum[:]
}

// fingerprint returns a digest of the canonical form of a submission.
func fingerprint(sub *authzen.Submission) ([]byte, error) {
	body, err := json.Marshal(sub)
	if err == nil {
		body, err = jsonobject.Canonical(body)
	}
	if err != nil {
		return nil, fmt.Errorf("encode submission: %w", err)
	}
	sum := sha256.Sum256(body)
	return sum[:], nil
}

// schedule sets when the request escalates, expires and is deleted. The shortest terms of its items
// apply to the first two, the longest to the last.
func (r *Request) schedule() {
	var longest time.Duration
	for _, i := range r.Items {
		r.DecideBy = earliest(r.Submitted.Add(i.Terms.DecideWithin.Duration), r.DecideBy)
		if i.Terms.Escalation.Duration > 0 {
			r.EscalateAt = earliest(r.Submitted.Add(i.Terms.Escalation.Duration), r.EscalateAt)
		}
		longest = max(longest, i.Terms.TTL.Duration)
	}
	r.ExpiresAt = r.DecideBy.Add(longest + retention)
}

// admit stores a request, unless too many are pending or stored. It consumes the binding tokens in
// the same transaction, so a failed submission does not.
func (s *Service) admit(tx txn, r *Request, proofs []*proof, c Caller) error {
	if tx.count(pendingPrefix(r.Tenant, nil), s.config.MaxPending) == s.config.MaxPending ||
		tx.count(pendingPrefix(r.Tenant, &r.Caller), s.config.MaxPendingCaller) == s.config.MaxPendingCaller {
		return ErrTooMany
	}
	for _, p := range proofs {
		if err := tx.consume(p.ID, p.Expires); err != nil {
			return err
		}
	}
	if err := tx.put(nil, r); err != nil {
		return err
	}
	if err := s.checkQuota(tx, r.Tenant); err != nil {
		return err
	}
	return outbox.Append(tx.Tx, submitted(r, c, s.moment()))
}
