package pdp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp"
)

const olgaApproves = `{"decision":"approve","approver":{"type":"user","id":"olga"}}`

// Whenever the service ends after the approval of a capability, the next start issues it.
func TestApprovedCapabilityIsIssuedAfterACrash(t *testing.T) {
	var images []string
	var h *harmed
	armed := false
	h = harm(t, capabilityStore(), decisionlog.Config{OnCommit: func(int, time.Duration) {
		if armed {
			images = append(images, leftBy(t, h.state))
		}
	}})
	u := capabilityUser{&service{main: h.main.URL, admin: h.admin.URL}, t, ""}
	status, asked := u.ask(twoTools)
	if status != http.StatusAccepted {
		t.Fatalf("%d %+v", status, asked)
	}
	armed = true
	if status, _ := u.vote(t, asked.Task.ID, olgaApproves); status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}
	if got := u.show(asked.Capability.ID).Capability; got.Status != "active" {
		t.Fatalf("%+v", got)
	}
	armed = false
	for n, image := range images {
		restarted := capabilityUser{start(t, pdp.Config{Policies: capabilityStore(), State: image}), t, ""}
		var task pdp.AccessRequest
		if askAs(t, "", "GET", restarted.admin+pdp.PathRequests+"/"+asked.Task.ID, "", &task); task.Status == "pending" {
			continue
		}
		if got := restarted.show(asked.Capability.ID).Capability; got.Status != "active" || *got.UsesLeft != 2 {
			t.Errorf("ended after entry %d of %d: it is %s, with the reason %q", n+1, len(images), got.Status, got.Reason)
		}
	}
	if want := 7; len(images) != want { // a question for each item, the vote, a use of each item, the batch and the issue
		t.Errorf("%d entries, want %d", len(images), want)
	}
}
