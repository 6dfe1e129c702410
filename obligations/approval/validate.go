package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// validate checks every item against its denial and sets the bindings of the
// request from it. It may be slow, because it reads the log where a denial is
// named by its evaluation. It must not run in a transaction.
func (s *Service) validate(ctx context.Context, r *Request, sub *authzen.Submission, denials []*authzen.Denial) ([]*proof, error) {
	var proofs []*proof
	for i := range r.Items {
		p, err := s.proofOf(ctx, r, denials[i])
		if err != nil {
			return nil, err
		}
		if !p.covers(sub, r.Items[i].Resource, r.Items[i].Action) {
			return nil, ErrBinding
		}
		if denials[i].ExpiresAt != p.ExpiresAt {
			return nil, fmt.Errorf("%w: denial.expires_at is another one: %s", ErrBinding, denialHolds)
		}
		proofs = append(proofs, p)
	}
	for i, p := range proofs {
		if r.Submitted.Unix() >= p.Expires {
			return nil, ErrExpiredDenial
		}
		if !slices.Equal(r.Actors, p.Actors) {
			return nil, ErrActor
		}
		if err := s.bind(r, &r.Items[i], p); err != nil {
			return nil, err
		}
	}
	r.schedule()
	return proofs, nil
}

// denialHolds explains how a submission names its denial.
const denialHolds = "copy expires_at and binding_token from context.access_request of the answer that denied, or name that answer by evaluation_id beside expires_at"

// proofOf returns the proof of a denial for this tenant and caller. A token is a
// proof by itself. An evaluation is a proof if FindDenial can resolve it.
func (s *Service) proofOf(ctx context.Context, r *Request, d *authzen.Denial) (*proof, error) {
	if d == nil {
		return nil, fmt.Errorf("%w: the member denial is missing, of the submission or of the item: %s", ErrBinding, denialHolds)
	}
	p := new(proof)
	switch {
	case d.BindingToken != "":
		if err := s.ring().verify(typeBinding, d.BindingToken, p); err != nil {
			return nil, fmt.Errorf("%w: the binding token is not valid", ErrBinding)
		}
		if base := s.base(r.Tenant); p.Issuer != base || p.Audience != base {
			return nil, fmt.Errorf("%w: the binding token is for another service", ErrBinding)
		}
	case d.EvaluationID != "" && s.config.FindDenial != nil:
		resolved, err := s.resolve(ctx, r.Tenant, d.EvaluationID)
		if err != nil {
			return nil, err
		}
		p = resolved
	default:
		return nil, fmt.Errorf("%w: denial.binding_token is missing: %s", ErrBinding, denialHolds)
	}
	if p.Tenant != r.Tenant || p.Caller != r.Caller || d.EvaluationID != "" && d.EvaluationID != p.EvaluationID {
		return nil, ErrBinding
	}
	return p, nil
}

// resolve returns the proof of a denial from the log.
func (s *Service) resolve(ctx context.Context, tenant, evaluationID string) (*proof, error) {
	d, err := s.config.FindDenial(ctx, tenant, evaluationID)
	switch {
	case errors.Is(err, authzen.ErrUnknownEvaluation):
		return nil, fmt.Errorf("%w: %w", ErrBinding, err)
	case err != nil:
		return nil, err
	case d == nil:
		return nil, ErrNotRequestable
	}
	terms, err := s.config.Template(d.Tenant, d.Template)
	if err != nil {
		return nil, fmt.Errorf("approval template %q: %w", d.Template, err)
	}
	p, err := newProof(d, terms.Context, s.window(d.Time), s.base(tenant))
	return &p, err
}

// bind sets the terms that govern the decision on an item.
func (s *Service) bind(r *Request, i *Item, p *proof) error {
	terms, err := s.config.Template(r.Tenant, p.Template)
	if err != nil {
		return fmt.Errorf("approval template %q: %w", p.Template, err)
	}
	access := r.Access
	if i.Access != nil {
		access = merged(r.Access, i.Access)
	}
	if i.Until, err = requestedUntil(access, r.Submitted); err != nil {
		return err
	}
	priority, err := requestedPriority(access)
	if err != nil {
		return err
	}
	r.prioritize(priority)
	if terms.CheckAccess != nil {
		if err := terms.CheckAccess(access); err != nil {
			return err
		}
	}
	i.Status, i.Template, i.Terms = authzen.TaskPending, p.Template, terms
	i.EvaluationID, i.Revision, i.Bound = p.EvaluationID, p.Revision, *p.context()
	return nil
}
