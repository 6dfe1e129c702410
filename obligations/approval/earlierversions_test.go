package approval_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// rewriteFile changes the file of a desk, which is closed meanwhile, and opens it again.
func (d *desk) rewriteFile(t *testing.T, change func(*bolt.Tx) error) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d.Service = nil
	db, err := bolt.Open(filepath.Join(d.dir, approval.FileName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
	d.reopen(t)
}

// rewrite changes the stored requests of a desk.
func (d *desk) rewrite(t *testing.T, change func([]byte) []byte) {
	t.Helper()
	d.rewriteFile(t, func(tx *bolt.Tx) error {
		tasks := tx.Bucket([]byte("tasks"))
		changed := map[string][]byte{}
		err := tasks.ForEach(func(id, value []byte) error {
			changed[string(id)] = change(bytes.Clone(value))
			return nil
		})
		for id, value := range changed {
			if err == nil {
				err = tasks.Put([]byte(id), value)
			}
		}
		return err
	})
}

// Uses in the form of an earlier version count, and match no repetition.
func TestUsesOfAnEarlierVersion(t *testing.T) {
	d := open(t, with(func(terms *authzen.ApprovalTemplate) { terms.Uses = 2 }))
	approved := d.approve(t, push)
	claim := &authzen.Reevaluation{
		Tenant: gateway.Tenant, Caller: gateway.ID, RequestID: "call-1", Time: d.time(), Claim: jsontext.Value(`{"id":"` + approved.ID + `"}`), Request: evaluation(t, push),
	}
	use := func() authzen.ApprovalStatus {
		t.Helper()
		standing, err := d.Verify(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		if standing.Consume != nil {
			if err := standing.Consume(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return standing
	}
	use()
	uses := regexp.MustCompile(`"uses":\[\{[^]]*\}\]`)
	d.rewrite(t, func(stored []byte) []byte {
		if !uses.Match(stored) {
			t.Fatalf("no uses in %s", stored)
		}
		return uses.ReplaceAll(stored, []byte(`"uses":["call-1"]`))
	})
	if got := use(); got.Approval == nil || got.Approval.UsesLeft != 1 {
		t.Errorf("after one use of two it is %+v", got)
	}
	claim.RequestID = "call-2"
	if got := use(); got.Approval != nil {
		t.Errorf("after two uses of two it is %+v", got)
	}
}

// A request with a complete context, as an earlier version stored it, can be decided and used.
func TestContextOfAnEarlierVersion(t *testing.T) {
	d := open(t, plain)
	id := d.submit(t, push).Task.ID
	digest := regexp.MustCompile(`"members":\["workflow_id"\],"whole":true,"digest":"[^"]*"`)
	d.rewrite(t, func(stored []byte) []byte {
		if !digest.Match(stored) {
			t.Fatalf("no digest in %s", stored)
		}
		return digest.ReplaceAll(stored, []byte(`"members":["workflow_id"],"whole":true,"context":{"workflow_id":"wf-1"}`))
	})
	asked := ""
	d.config.CanApprove = func(_ context.Context, check approval.Check) (bool, error) {
		asked = string(check.Request.Resource.Properties)
		return true, nil
	}
	d.reopen(t)
	if _, err := d.Decide(t.Context(), id, approver("carol"), approves); err != nil || !strings.Contains(asked, `"context":{"workflow_id":"wf-1"}`) {
		t.Fatalf("asked %s, %v", asked, err)
	}
	task, err := d.Status(t.Context(), gateway, id)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.again(t, push, task.Result.Approval); got.Approval == nil {
		t.Errorf("it does not stand: %s", got.Reason)
	}
	if got := d.again(t, edit(t, "wf-1", "wf-2"), task.Result.Approval); got.Reason != authzen.ReasonOutOfScope {
		t.Errorf("with another context: %+v", got)
	}
}
