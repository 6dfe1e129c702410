package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Handler carries out one obligation. An error means that the PEP cannot comply.
type Handler func(context.Context, authzen.Obligation) error

// Obligations maps obligation types to handlers. The handler for custom obligations must return an
// error for one it does not know.
type Obligations map[string]Handler

// ErrObligation means that the PEP cannot comply with an obligation, and therefore must deny.
var ErrObligation = errors.New("an obligation is not met")

// Supported lists the types that the PEP can carry out and the PDP may issue, for
// context.supported_obligations (Obligations Profile, "Negotiation"). It is never nil, so that a
// PEP without handlers declares an empty list.
func (o Obligations) Supported(pdp *authzen.Metadata) []string {
	supported := []string{}
	for _, t := range pdp.SupportedObligations {
		if o[t] != nil {
			supported = append(supported, t)
		}
	}
	return supported
}

// Discharge carries out all obligations of a decision concurrently, and returns whether access is
// granted. A permit is granted only if all succeed. An unknown type or a failure does not stop the
// others (Obligations Profile, "Non-Compliance and Partial Compliance"). Obligations of a denial
// are carried out as well. The error is an [ErrObligation] and names the failed obligations.
//
// Discharge returns only after all handlers have returned. They should stop when ctx ends.
func (o Obligations) Discharge(ctx context.Context, d *authzen.Decision) (granted bool, err error) {
	if d.Context == nil {
		return d.Decision, nil
	}
	errs := make([]error, len(d.Context.Obligations))
	var all sync.WaitGroup
	for i, obligation := range d.Context.Obligations {
		all.Go(func() { errs[i] = o.discharge(ctx, obligation) })
	}
	all.Wait()
	err = errors.Join(errs...)
	return d.Decision && err == nil, err
}

// Permitted discharges each decision of a batch or search separately. A failed obligation excludes
// only its own result.
func (o Obligations) Permitted(ctx context.Context, all []authzen.Decision) ([]bool, error) {
	granted := make([]bool, len(all))
	errs := make([]error, len(all))
	for i := range all {
		granted[i], errs[i] = o.Discharge(ctx, &all[i])
	}
	return granted, errors.Join(errs...)
}

// discharge carries out one obligation. It turns a panic of the handler into an error.
func (o Obligations) discharge(ctx context.Context, obligation authzen.Obligation) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s (%s): panic: %v", ErrObligation, obligation.ID, obligation.Type, p)
		}
	}()
	handler := o[obligation.Type]
	if handler == nil {
		return fmt.Errorf("%w: %s: the type %q is not known", ErrObligation, obligation.ID, obligation.Type)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %s (%s): %w", ErrObligation, obligation.ID, obligation.Type, err)
	}
	if err := handler(ctx, obligation); err != nil {
		return fmt.Errorf("%w: %s (%s): %w", ErrObligation, obligation.ID, obligation.Type, err)
	}
	return nil
}
