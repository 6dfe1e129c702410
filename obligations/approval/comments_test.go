package approval_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// The requester sees the comment of a denial if the template allows it. Comments of approvals stay
// internal.
func TestTellComment(t *testing.T) {
	const title = `{"title":"Asked"}`
	for _, test := range []struct {
		told     bool
		display  string
		decision approval.Decision
		want     string
	}{
		{true, "", approval.Decision{Decision: "deny", Comment: "not in the window"}, `{"comment":"not in the window"}`},
		{true, title, approval.Decision{Decision: "deny", Comment: `say "why"`}, `{"comment":"say \"why\"","title":"Asked"}`},
		{true, title, approval.Decision{Decision: "deny"}, title},
		{true, title, approval.Decision{Decision: "approve", Comment: "fine"}, title},
		{false, title, approval.Decision{Decision: "deny", Comment: "not in the window"}, title},
		{false, "", approval.Decision{Decision: "deny", Comment: "not in the window"}, ""},
	} {
		d := open(t, with(func(terms *authzen.ApprovalTemplate) {
			terms.TellComment = test.told
			if test.display != "" {
				terms.Display = jsontext.Value(test.display)
			}
		}))
		id := d.submit(t, push).Task.ID
		if _, err := d.Decide(t.Context(), id, approver("carol"), test.decision); err != nil {
			t.Fatal(err)
		}
		task, err := d.Status(t.Context(), gateway, id)
		if err != nil || string(task.Task.Display) != test.want {
			t.Errorf("%+v: display %s, %v", test, task.Task.Display, err)
		}
	}
}

// The reason of a cancellation or revocation has limited length.
func TestLongReason(t *testing.T) {
	d := open(t, plain)
	approved := d.approve(t, push).ID
	pending := d.submit(t, push).Task.ID
	long := strings.Repeat("x", 4097)
	cancel := func(why authzen.Cancellation) error {
		_, err := d.Cancel(t.Context(), gateway, pending, why)
		return err
	}
	revoke := func(reason string) error {
		_, err := d.Revoke(t.Context(), approved, approver("carol"), reason)
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		path string
	}{
		"cancel: reason":  {cancel(authzen.Cancellation{Reason: long}), "/reason"},
		"cancel: comment": {cancel(authzen.Cancellation{Comment: long}), "/comment"},
		"revoke: reason":  {revoke(long), "/reason"},
	} {
		var invalid *authzen.ValidationError
		if !errors.As(tt.err, &invalid) || invalid.Path != tt.path {
			t.Errorf("%s of 4,097 bytes: %v", name, tt.err)
		}
	}
	if err := errors.Join(cancel(authzen.Cancellation{Reason: long[1:], Comment: long[1:]}), revoke(long[1:])); err != nil {
		t.Errorf("4,096 bytes: %v", err)
	}
}

// A comment has limited length: it is stored, recorded and may be sent.
func TestLongComment(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	var invalid *authzen.ValidationError
	if _, err := d.Decide(t.Context(), id, approver("carol"), approval.Decision{Decision: "deny", Comment: strings.Repeat("x", 4097)}); !errors.As(err, &invalid) || invalid.Path != "/comment" {
		t.Errorf("4,097 bytes: %v", err)
	}
	if _, err := d.Decide(t.Context(), id, approver("carol"), approval.Decision{Decision: "deny", Comment: strings.Repeat("x", 4096)}); err != nil {
		t.Errorf("4,096 bytes: %v", err)
	}
}

// If the policies' schema does not fit a request, the error says what does not fit.
func TestUndecidable(t *testing.T) {
	d := open(t, plain)
	d.config.CanApprove = func(context.Context, approval.Check) (bool, error) {
		return false, authzen.Invalid("/resource/properties/resource/type", `must be dataset, not "tool"`)
	}
	d.reopen(t)
	_, err := d.Decide(t.Context(), d.submit(t, push).Task.ID, approver("carol"), approves)
	const want = `the schema says that resource of access_request must be dataset, not "tool"`
	if !errors.Is(err, approval.ErrUndecidable) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "/resource/properties") {
		t.Errorf("got %v", err)
	}
}
