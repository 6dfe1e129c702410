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

// callsAtOnce is how many callbacks go to one destination at the same time.
const callsAtOnce = 8

// Notify calls back the PEPs that have to learn how their task ended, each
// once. One that cannot be reached is called again later. Destinations do not
// wait for each other: a PEP that is slow delays its own calls alone.
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

// RunCallbacks calls PEPs back until ctx ends. A destination that is still being
// called is left alone, and keeps no other one waiting.
func (s *Service) RunCallbacks(ctx context.Context) error {
	var busy sync.Map // destinations
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

// destinations lists where PEPs are to be called back now.
func (s *Service) destinations(ctx context.Context) (all []string, err error) {
	err = s.view(ctx, func(tx txn) error {
		all = tx.destinations(s.now())
		return nil
	})
	return all, err
}

// notifyAll calls the PEPs at one destination until nobody there is due.
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

// notifyAtOnce calls some PEPs at the same time. It returns the calls that
// failed, and apart from them why how it went could not be noted.
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

// notify calls one PEP back, and notes how that went. A call that broke off
// because the service ends is made again.
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

// destination is the part of a callback's endpoint that says who answers.
func destination(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil { // it was allowed once
		return ""
	}
	return u.Scheme + "://" + u.Host
}
