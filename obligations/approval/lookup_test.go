package approval_test

import (
	"context"
	"testing"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A slow lookup of a denial blocks no other submission and no status request.
func TestLookupBlocksNobody(t *testing.T) {
	d := open(t, plain)
	waiting := d.submit(t, push).Task.ID
	other := d.submission(t, push)
	d.config.FindDenial = func(ctx context.Context, tenant, id string) (*authzen.RequestableDenial, error) {
		others := make(chan error)
		go func() {
			_, err := d.Status(ctx, gateway, waiting)
			if err == nil {
				_, err = d.Submit(ctx, gateway, "", other)
			}
			others <- err
		}()
		select {
		case err := <-others:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("others wait until the denial is found")
		}
		return &authzen.RequestableDenial{
			EvaluationID: id, Tenant: tenant, Caller: gateway.ID, Time: d.time(), Revision: d.revision, Template: "sre", Request: evaluation(t, push),
		}, nil
	}
	d.reopen(t)
	r := evaluation(t, push)
	task, err := d.Submit(t.Context(), gateway, "", &authzen.Submission{
		Subject: r.Subject, Resource: &r.Resource, Action: &r.Action, Context: r.Context,
		Denial: &authzen.Denial{EvaluationID: "evaluation-x", ExpiresAt: d.time().Add(10 * time.Minute).Format(time.RFC3339)},
	})
	if err != nil || task.Task.Status != authzen.TaskPending {
		t.Errorf("the submission itself: %+v, %v", task, err)
	}
}
