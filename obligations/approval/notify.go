package approval

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// noticeBatch is how many PEPs are called back in a row.
const noticeBatch = 50

// Notify calls back the PEPs that have to learn how their task ended, each
// once. One that cannot be reached is called again later.
func (s *Service) Notify(ctx context.Context) error {
	var due []*Request
	err := s.view(ctx, func(tx txn) (err error) {
		due, err = tx.overdue(bucketNotices, s.now(), noticeBatch)
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range due {
		errs = append(errs, s.notify(ctx, r))
	}
	return errors.Join(errs...)
}

// notify calls one PEP back, and notes how that went.
func (s *Service) notify(ctx context.Context, r *Request) error {
	task, err := s.response(r)
	if err != nil {
		return err
	}
	body, err := json.Marshal(authzen.Notification{State: r.Callback.State, Task: task.Task})
	if err != nil {
		return fmt.Errorf("encode notification: %w", err)
	}
	e := event{kind: eventNotify}
	failed := s.config.Call(ctx, r.Callback.Endpoint, body)
	if failed != nil {
		e.kind, e.reason = eventNotNotify, failed.Error()
	}
	_, err = s.apply(ctx, r.ID, e)
	return errors.Join(failed, err)
}
