package client_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

func TestDecide(t *testing.T) {
	var sent string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = r.Method + " " + r.URL.Path + " " + string(body)
		says(`{"status":"approved","summary":"…","id":"arq_1"}`)(w, r)
	})
	vote := &client.Vote{
		Approver: &authzen.Subject{Type: "user", ID: "olga"}, Decision: client.Approve, Comment: "go on",
		ApprovedUntil: time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC), Arguments: jsontext.Value(`{"target":"staging"}`),
	}
	status, err := client.New(url, client.Config{}).Decide(t.Context(), "arq_1", vote)
	if err != nil || status != authzen.TaskApproved {
		t.Errorf("%q %v", status, err)
	}
	want := `POST /admin/v1/requests/arq_1/decision {"approver":{"type":"user","id":"olga"},"decision":"approve","comment":"go on","approved_until":"2026-11-21T13:00:00Z","arguments":{"target":"staging"}}`
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
	if _, err := client.New(url, client.Config{}).Decide(t.Context(), "arq_1", &client.Vote{Decision: client.Delegate, To: &authzen.Subject{Type: "user", ID: "dave"}}); err != nil {
		t.Error(err)
	}
	if want := `POST /admin/v1/requests/arq_1/decision {"decision":"delegate","to":{"type":"user","id":"dave"}}`; sent != want {
		t.Errorf("%s, want %s", sent, want)
	}
}

// Only a complete answer says that a vote is recorded.
func TestVotesThatAreNotRecorded(t *testing.T) {
	for _, body := range []string{`{}`, `{"status":""}`, `{"status":1}`, `[]`, `{"status":"approved"`} {
		if status, err := client.New(serve(t, says(body)), client.Config{}).Decide(t.Context(), "arq_1", &client.Vote{Decision: client.Deny}); err == nil {
			t.Errorf("%s: %q", body, status)
		}
	}
	url := serve(t, answers(http.StatusForbidden, "application/json", `{"error":{"status":403,"message":"the approver may not decide this request"}}`))
	_, err := client.New(url, client.Config{}).Decide(t.Context(), "arq_1", &client.Vote{Decision: client.Approve})
	var refused *client.StatusError
	if !errors.As(err, &refused) || refused.Status != http.StatusForbidden || refused.Message != "the approver may not decide this request" {
		t.Errorf("%v", err)
	}
}
