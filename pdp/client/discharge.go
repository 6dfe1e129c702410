package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Handler carries out one obligation. Any error means that the PEP cannot
// comply with it.
type Handler func(context.Context, authzen.Obligation) error

// Obligations are what a PEP can carry out, by obligation type. A custom
// obligation that the handler does not recognise is one it must return an
// error for.
type Obligations map[string]Handler

// ErrObligation means that the PEP cannot comply with an obligation, and so
// must deny.
var ErrObligation = errors.New("an obligation is not met")

// Supported lists the types that the PEP can carry out and the PDP may issue:
// what the PEP declares in context.supported_obligations (Obligations Profile,
// "Negotiation"). It is never nil: a PEP that can do nothing says so.
func (o Obligations) Supported(pdp *authzen.Metadata) []string {
	supported := []string{}
	for _, t := range pdp.SupportedObligations {
		if o[t] != nil {
			supported = append(supported, t)
		}
	}
	return supported
}

// Discharge carries out every obligation of a decision, all at once, and
// returns whether access is granted. A denial stays one, and its obligations
// are carried out all the same. A permit is granted only if all of them were;
// one that is of an unknown type or fails does not keep the others from being
// carried out (Obligations Profile, "Non-Compliance and Partial Compliance").
// The error says which obligations were not met, and is an [ErrObligation].
//
// ctx bounds the whole: a handler that does not end with it keeps Discharge
// from returning.
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

// Permitted discharges the obligations of each decision of a batch or of a
// search alone: one that cannot be met excludes its own result and no other.
func (o Obligations) Permitted(ctx context.Context, all []authzen.Decision) ([]bool, error) {
	granted := make([]bool, len(all))
	errs := make([]error, len(all))
	for i := range all {
		granted[i], errs[i] = o.Discharge(ctx, &all[i])
	}
	return granted, errors.Join(errs...)
}

// discharge carries out one obligation. A handler that panics has not.
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
