package approval

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Caller is who asks: a PEP of a tenant.
type Caller struct {
	Tenant    string
	ID        string   // as authenticated; "" where callers are not
	Names     []string // every verified name of the caller
	RequestID string
}

// retention is how long a task can be asked about when nothing that came of
// it can matter any more.
const retention = 24 * time.Hour

// Submit takes an Access Request and returns its task. The same submission
// under the same idempotency key is answered with the task as it is by then,
// before anything else is looked at: a late repetition is neither expired nor
// replayed. A template may name an approver that is asked at once; the task
// may then be decided already.
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

// known returns the task that the idempotency key of a request stands for, ""
// for none.
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

// accept stores a request whose denials prove it. It returns the task that the
// same submission has made meanwhile, "" for none.
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

// draft makes the request that a submission asks for, as yet unproved, and
// lists the denials it rests on.
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
		ID: "arq_" + s.config.NewID(), Tenant: c.Tenant, Caller: c.ID, CallerNames: beside(c.ID, c.Names), Subject: sub.Subject, Actors: actors,
		Context: sub.Context, Access: sub.RequestedAccess, Client: sub.Client, Callback: sub.Callback,
		Submitted: s.now(), Bulk: len(sub.Items) > 0, Items: items,
		Idempotency: idempotencyKey(c, key), Submission: fingerprint,
	}, denials, nil
}

// maxItems bounds what is asked for at once, and maxRepeated the bytes of the
// subject in the answer, where the approval of every item has it.
const (
	maxItems    = 100
	maxRepeated = 4 << 20
)

// itemsOf returns what a submission is about, and for each of it the denial.
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

// idempotencyKey is what a key of a caller is stored under. RFC 8941 would
// have it quoted, the profile does not.
func idempotencyKey(c Caller, key string) []byte {
	if len(key) > 1 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	if key == "" {
		return nil
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Tenant, c.ID, key))
	return sum[:]
}

// fingerprint is the same for the same submission, however it was written.
func fingerprint(sub *authzen.Submission) ([]byte, error) {
	body, err := json.Marshal(sub)
	if err == nil {
		body, err = canonical(body)
	}
	if err != nil {
		return nil, fmt.Errorf("encode submission: %w", err)
	}
	sum := sha256.Sum256(body)
	return sum[:], nil
}

// schedule says when the request escalates, expires and is forgotten: by the
// shortest of the terms of its items, but for the last.
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

// admit stores a request that is proved, unless too many are pending or kept. Its
// binding tokens are used up by that and not by a submission that failed.
func (s *Service) admit(tx txn, r *Request, proofs []*proof, c Caller) error {
	if tx.count(pendingPrefix(r.Tenant, nil), s.config.MaxPending) == s.config.MaxPending ||
		tx.count(pendingPrefix(r.Tenant, &r.Caller), s.config.MaxPendingCaller) == s.config.MaxPendingCaller {
		return ErrTooMany
	}
	for _, p := range proofs {
		if err := tx.spend(p.ID, p.Expires); err != nil {
			return err
		}
	}
	if err := tx.put(nil, r); err != nil {
		return err
	}
	if err := s.checkQuota(tx, r.Tenant); err != nil {
		return err
	}
	return tx.record(submitted(r, c, s.moment()))
}
