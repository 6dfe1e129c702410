package approval

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// callsAtOnce is the maximum number of concurrent callbacks to one destination.
const callsAtOnce = 8

// Notify sends one callback for each ended task whose PEP asked for it. Failed
// callbacks are retried later. Destinations are independent: a slow PEP delays
// only its own callbacks.
func (s *Service) Notify(ctx context.Context) error {
	due, err := s.destinations(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(due))
	var all sync.WaitGroup
	for i, to := range due {
		all.Go(func() { errs[i] = s.notifyAll(ctx, to) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// RunCallbacks sends callbacks until ctx ends. It skips a destination that is
// still being called, so that no other destination waits.
func (s *Service) RunCallbacks(ctx context.Context) error {
	var busy sync.Map // destinations being called
	var all sync.WaitGroup
	defer all.Wait()
	return s.repeat(ctx, func(ctx context.Context) error {
		due, err := s.destinations(ctx)
		for _, to := range due {
			if _, already := busy.LoadOrStore(to, true); already {
				continue
			}
			all.Go(func() {
				defer busy.Delete(to)
				if err := s.notifyAll(ctx, to); err != nil && ctx.Err() == nil {
					s.config.OnError(err)
				}
			})
		}
		return err
	})
}

// destinations returns the destinations with callbacks that are due.
func (s *Service) destinations(ctx context.Context) (all []string, err error) {
	err = s.view(ctx, func(tx txn) error {
		all = tx.destinations(bucketNotices, s.now())
		return nil
	})
	return all, err
}

// notifyAll sends callbacks to one destination until none is due.
func (s *Service) notifyAll(ctx context.Context, to string) error {
	var errs []error
	for ctx.Err() == nil {
		var due []*Request
		err := s.view(ctx, func(tx txn) (err error) {
			due, err = tx.dueCallbacks(to, s.now(), callsAtOnce)
			return err
		})
		if err != nil || len(due) == 0 {
			return errors.Join(append(errs, err)...)
		}
		failed, err := s.notifyAtOnce(ctx, due)
		errs = append(errs, failed...)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// notifyAtOnce sends callbacks concurrently. It returns the errors of failed
// callbacks, and separately the error of recording an outcome.
func (s *Service) notifyAtOnce(ctx context.Context, due []*Request) (failed []error, err error) {
	failed = make([]error, len(due))
	var all errgroup.Group
	for i, r := range due {
		all.Go(func() (err error) {
			failed[i], err = s.notify(ctx, r)
			return err
		})
	}
	err = all.Wait()
	return failed, err
}

// notify sends one callback and records its outcome. A callback that shutdown
// interrupts is sent again.
func (s *Service) notify(ctx context.Context, r *Request) (failed, err error) {
	task, err := s.response(r)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(authzen.Notification{State: r.Callback.State, Task: task.Task})
	if err != nil {
		return nil, fmt.Errorf("encode notification: %w", err)
	}
	e := event{kind: eventNotify}
	failed = s.config.SendCallback(ctx, r.Callback.Endpoint, body)
	if ctx.Err() != nil {
		return failed, ctx.Err()
	}
	if failed != nil {
		e.kind, e.reason = eventNotNotify, failed.Error()
	}
	_, err = s.apply(ctx, r.ID, e)
	return failed, err
}

// destination returns the scheme and host of a callback endpoint.
func destination(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil { // cannot happen: the endpoint was validated at submission
		return ""
	}
	return u.Scheme + "://" + u.Host
}
