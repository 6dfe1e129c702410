package pdp

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errDeadline is a decision that was not on disk in time. Its entry may be in
// the log nevertheless; nobody is told what it says.
var errDeadline = errors.New("there was no decision in time: ask again")

// A deadline is how long a decision may take, from when its request has been
// read until it is on disk.
type deadline time.Duration

// run has act end by the deadline. What ends later is errDeadline, whatever act
// has come to.
func (d deadline) run(ctx context.Context, act func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(d), errDeadline)
	defer cancel()
	err := act(ctx)
	switch {
	case !errors.Is(context.Cause(ctx), errDeadline) || errors.Is(err, errDeadline):
		return err
	case err == nil:
		return errDeadline
	}
	return fmt.Errorf("%w: %w", errDeadline, err)
}

// within is a method of the API that keeps to a deadline.
func within[Request, Response any](d deadline, call func(context.Context, *Request) (*Response, error)) func(context.Context, *Request) (*Response, error) {
	return func(ctx context.Context, req *Request) (response *Response, err error) {
		err = d.run(ctx, func(ctx context.Context) error {
			response, err = call(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return response, nil
	}
}
