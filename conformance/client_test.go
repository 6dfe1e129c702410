package conformance_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// The client and the service of this module understand each other.
func TestClientEvaluate(t *testing.T) {
	s := serve(t, "certification")
	pdp := client.New(s.URL, client.Config{RequestID: func(context.Context) string { return t.Name() }})
	status, err := client.Properties(map[string]any{"status": "archived"})
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]bool{"alice": false, "bob": true} {
		got, err := pdp.Evaluate(t.Context(), &authzen.EvaluationRequest{
			Subject:  authzen.Subject{Type: "user", ID: user},
			Action:   authzen.Action{Name: "write"},
			Resource: authzen.Resource{Type: "record", ID: "record-2", Properties: status},
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&authzen.Decision{Decision: want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", user, diff)
		}
	}
}

func TestClientEvaluations(t *testing.T) {
	s := serve(t, "certification")
	pdp := client.New(s.URL, client.Config{})
	read, write := jsontext.Value(`{"action":{"name":"read"}}`), jsontext.Value(`{"action":{"name":"write"}}`)
	for semantic, want := range map[authzen.Semantic][]authzen.Decision{
		"":                          {{Decision: true}, {}, {Decision: true}},
		authzen.DenyOnFirstDeny:     {{Decision: true}, {}},
		authzen.PermitOnFirstPermit: {{Decision: true}},
	} {
		got, err := pdp.Evaluations(t.Context(), &authzen.EvaluationsRequest{
			Subject:     jsontext.Value(`{"type":"user","id":"alice"}`),
			Resource:    jsontext.Value(`{"type":"record","id":"record-2"}`),
			Evaluations: []jsontext.Value{read, write, read},
			Options:     authzen.Options{Semantic: semantic},
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&authzen.EvaluationsResponse{Evaluations: want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", semantic, diff)
		}
	}
	var refused *client.StatusError
	if _, err := pdp.Evaluations(t.Context(), &authzen.EvaluationsRequest{}); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("a batch of nothing: %v", err)
	}
}

func TestClientMetadata(t *testing.T) {
	s := serve(t, "certification")
	got, err := client.New(s.URL, client.Config{}).Metadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.AccessEvaluationEndpoint != s.URL+authzen.PathEvaluation {
		t.Errorf("the metadata are %+v", got)
	}
}

// The tenant, actor, action, resource shape gets an answer that its client
// takes, whether it allows, denies or waits for a person.
func TestClientAuthorize(t *testing.T) {
	s := serve(t, "agent-tools")
	pdp := client.New(s.URL, client.Config{})
	request := authzen.AuthorizeRequest{
		TenantID: "acme",
		Actor:    authzen.Actor{ActorID: "agent-workflow-123", ActorType: "agent", Roles: []string{"workflow_orchestrator"}},
		Action:   "tool.invoke",
		Resource: authzen.AuthorizeResource{
			Type: "tool", ID: "jira-server-1:create_ticket",
			Labels: jsontext.Value(`{"category":"sensitive","integration":"jira","impact":"write"}`),
		},
	}
	got, err := pdp.Authorize(t.Context(), &request)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Allow || !got.Obligations.ApprovalRequired || got.Approval == nil {
		t.Errorf("a sensitive write: %+v", got)
	}
	request.Actor.ActorID, request.Actor.Roles = "stranger", nil
	got, err = pdp.Authorize(t.Context(), &request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&authzen.AuthorizeResponse{}, got); diff != "" {
		t.Errorf("a stranger (-want +got):\n%s", diff)
	}
}

// A PEP that uses the client comes from a denial to the permit that a person
// has approved, and knows at every step what comes next.
func TestClientApproval(t *testing.T) {
	s := serve(t, "agent-tools")
	pdp := client.New(s.URL, client.Config{})
	request := authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: "user", ID: "alice"},
		Action:   authzen.Action{Name: "tool.invoke"},
		Resource: authzen.Resource{Type: "tool", ID: "github.push_code"},
	}
	denied, err := pdp.Evaluate(t.Context(), &request)
	must(t, err)
	submission, err := client.Submission(&request, denied)
	must(t, err)
	metadata, err := pdp.Metadata(t.Context())
	must(t, err)
	task, err := pdp.Submit(t.Context(), metadata.AccessRequestEndpoint, t.Name(), submission)
	must(t, err)

	early, err := client.Approved(&request, &authzen.Approval{ID: task.Task.ID})
	must(t, err)
	if got, err := pdp.Evaluate(t.Context(), early); err != nil || got.Decision || client.Next(got) != authzen.NextRetry {
		t.Errorf("before anybody has decided: %+v, %v", got, err)
	}

	var decided struct{}
	status, err := postJSON(t.Context(), s.Admin+"/admin/v1/requests/"+task.Task.ID+"/decision", `{"decision":"approve","approver":{"type":"user","id":"carol"}}`, &decided)
	if err != nil || status != http.StatusOK {
		t.Fatalf("carol approves: %d, %v", status, err)
	}
	approval, err := pdp.Await(t.Context(), task)
	must(t, err)
	for use, want := range []bool{true, false} {
		got, err := pdp.Reevaluate(t.Context(), &request, approval)
		if err != nil || got.Decision != want || !want && client.Next(got) != authzen.NextRequest {
			t.Errorf("use %d of an approval for one: %+v, %v", use+1, got, err)
		}
	}
}
