package pdp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// docs returns a store whose documents need an approval, with these templates.
func docs(templates string) fstest.MapFS {
	return fstest.MapFS{
		"docs.cedar": {Data: []byte(`@id("docs") @requestable("data")
forbid (principal, action == Action::"read", resource is doc)
unless { context has approval && context.approval.template == "data" };

@id("users")
permit (principal is user, action == Action::"read", resource is doc);

@id("approvers")
permit (principal is approver, action, resource is access_request);
`)},
		"config.yaml": {Data: []byte("approval_templates:\n  data: " + templates + "\n")},
	}
}

// readDoc returns a request by alice to read a document.
func readDoc(doc, context string) string {
	return fmt.Sprintf(`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":%q},"context":{%s}}`, doc, context)
}

func claiming(approval string) string { return fmt.Sprintf(`"approval":{"id":%q}`, approval) }

// submitted submits a denied request and returns the task.
func (s *service) submitted(t testing.TB, request string) authzen.TaskResponse {
	t.Helper()
	var denied authzen.Decision
	_, body := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, request)
	if err := json.Unmarshal([]byte(body), &denied); err != nil || denied.Context == nil || denied.Context.AccessRequest == nil {
		t.Fatalf("%s is answered %s", request, body)
	}
	offer := denied.Context.AccessRequest
	submission := fmt.Sprintf(`%s,"denial":{"expires_at":%q,"binding_token":%q}}`, strings.TrimSuffix(request, "}"), offer.ExpiresAt.Format("2006-01-02T15:04:05Z07:00"), offer.BindingToken)
	var task authzen.TaskResponse
	_, body = post(t, http.DefaultClient, s.main+authzen.PathRequests, submission)
	if err := json.Unmarshal([]byte(body), &task); err != nil || task.Task.ID == "" {
		t.Fatalf("the submission is answered %s", body)
	}
	return task
}

// approved returns the id of an approval for a denied request.
func (s *service) approved(t testing.TB, request string) string {
	t.Helper()
	id := s.submitted(t, request).Task.ID
	_, body := post(t, http.DefaultClient, s.admin+pdp.PathRequests+"/"+id+"/decision", `{"decision":"approve","approver":{"type":"approver","id":"carol"}}`)
	var task authzen.TaskResponse
	if _, text := get(t, s.main+authzen.PathRequests+"/"+id); json.Unmarshal([]byte(text), &task) != nil || task.Result == nil {
		t.Fatalf("after %s the task is %s", body, text)
	}
	return task.Result.Approval.ID
}

// postWith posts a body with an X-Request-ID.
func postWith(t testing.TB, url, requestID, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header["X-Request-Id"] = []string{requestID}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An approval for one use permits one document, whatever the X-Request-ID. The same document again
// is a repetition.
func TestRequestIDDoesNotAddUses(t *testing.T) {
	s := start(t, pdp.Config{Policies: docs(`{uses: 1, scope: resource_type}`)})
	claim := claiming(s.approved(t, readDoc("a", "")))
	var permitted []string
	for n := range 50 {
		doc := fmt.Sprintf("doc-%d", n)
		if strings.HasPrefix(postWith(t, s.main+authzen.PathEvaluation, "same", readDoc(doc, claim)), `{"decision":true`) {
			permitted = append(permitted, doc)
		}
	}
	if len(permitted) != 1 {
		t.Errorf("one use permits %d documents: %v", len(permitted), permitted)
	}
	if got := postWith(t, s.main+authzen.PathEvaluation, "same", readDoc("doc-0", claim)); !strings.HasPrefix(got, `{"decision":true`) {
		t.Errorf("the repetition is answered %s", got)
	}
	if got := postWith(t, s.main+authzen.PathEvaluation, "other", readDoc("doc-0", claim)); !strings.Contains(got, "used up") || !strings.Contains(got, authzen.ReasonApprovalExpired) {
		t.Errorf("an approval that is used up is answered %s", got)
	}
}

// Items of a batch, and ids that are not text, do not count as repetitions of another request.
func TestBatchItemsAreNotRepetitions(t *testing.T) {
	for _, test := range []struct{ first, second string }{
		{"k", "k.0"}, {"k", "k"}, {"k", "k\x800"}, {"\xff", "\xfe"}, {"\xff", "\xff"}, {"", ""},
	} {
		s := start(t, pdp.Config{Policies: docs(`{uses: 1}`)})
		request := readDoc("a", claiming(s.approved(t, readDoc("a", ""))))
		batch := fmt.Sprintf(`{"evaluations":[%s,%s]}`, request, request)
		if got := postWith(t, s.main+authzen.PathEvaluations, test.first, batch); strings.Count(got, `"decision":true`) != 1 {
			t.Errorf("%q: two items of one batch use it: %s", test.first, got)
		}
		if got := postWith(t, s.main+authzen.PathEvaluation, test.second, request); strings.HasPrefix(got, `{"decision":true`) {
			t.Errorf("%q after the batch %q is permitted", test.second, test.first)
		}
		s.stop(t)
	}
}

// With tell_comment, the requester sees the comment of a denial.
func TestRequesterSeesTheComment(t *testing.T) {
	for templates, want := range map[string]bool{`{tell_comment: true}`: true, `{tell_comment: false}`: false, `{}`: false} {
		s := start(t, pdp.Config{Policies: docs(templates)})
		id := s.submitted(t, readDoc("a", "")).Task.ID
		post(t, http.DefaultClient, s.admin+pdp.PathRequests+"/"+id+"/decision", `{"decision":"deny","comment":"not in the window","approver":{"type":"approver","id":"carol"}}`)
		_, task := get(t, s.main+authzen.PathRequests+"/"+id)
		if !strings.Contains(task, `"status":"denied"`) || strings.Contains(task, `"display":{"comment":"not in the window"}`) != want || strings.Contains(task, "carol") {
			t.Errorf("%s: the task is %s", templates, task)
		}
	}
}

// With tell_approvers, the requester sees who approved. The claim of the approval holds
// with that and without.
func TestRequesterSeesTheApprovers(t *testing.T) {
	for templates, want := range map[string]string{`{tell_approvers: true}`: `"display":{"approvers":[{"type":"approver","id":"carol"}]}`, `{tell_approvers: false}`: "", `{}`: ""} {
		s := start(t, pdp.Config{Policies: docs(templates)})
		id := s.submitted(t, readDoc("a", "")).Task.ID
		if _, pending := get(t, s.main+authzen.PathRequests+"/"+id); strings.Contains(pending, "carol") || !strings.Contains(pending, `"display":{"decide_by":"`) {
			t.Errorf("%s: pending: %s", templates, pending)
		}
		post(t, http.DefaultClient, s.admin+pdp.PathRequests+"/"+id+"/decision", `{"decision":"approve","approver":{"type":"approver","id":"carol"}}`)
		_, text := get(t, s.main+authzen.PathRequests+"/"+id)
		if strings.Contains(text, "carol") != (want != "") || !strings.Contains(text, want) || strings.Contains(text, "decide_by") {
			t.Errorf("%s: approved: %s", templates, text)
		}
		var task struct {
			Result struct {
				Approval jsontext.Value `json:"approval"`
			} `json:"result"`
		}
		if err := json.Unmarshal([]byte(text), &task); err != nil {
			t.Fatal(err)
		}
		_, permitted := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, readDoc("a", `"approval":`+string(task.Result.Approval)))
		if !strings.HasPrefix(permitted, `{"decision":true`) || strings.Contains(permitted, "carol") {
			t.Errorf("%s: claimed: %s", templates, permitted)
		}
	}
}

// A withheld permit names the missing obligations. A PEP that declares them gets the permit.
func TestDenialNamesUnsupportedObligations(t *testing.T) {
	s := start(t, pdp.Config{Policies: fstest.MapFS{"step.cedar": {Data: []byte(`@id("step") @obligation_step_up("{\"acr_value\":\"aal2\"}") permit (principal, action, resource);`)}}})
	_, denied := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, readDoc("a", ""))
	const want = `{"decision":false,"context":{"reason_admin":{"en":"The permit is withheld: the PEP has to declare step-up in context.supported_obligations."},"supported_obligations":["step-up"],"reason":"obligation_unsupported"}}`
	if strings.TrimSpace(denied) != want {
		t.Errorf("answered %s, want %s", denied, want)
	}
	if _, permitted := post(t, http.DefaultClient, s.main+authzen.PathEvaluation, readDoc("a", `"supported_obligations":["step-up"]`)); !strings.HasPrefix(permitted, `{"decision":true,"context":{"obligations":[`) {
		t.Errorf("with the declaration: %s", permitted)
	}
}

// With return=minimal, a denial has no binding token and can be submitted by its Decision-ID.
func TestMinimalDenial(t *testing.T) {
	s := start(t, pdp.Config{Policies: docs(`{}`)})
	ask := func(preference string) (string, authzen.Decision) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.main+authzen.PathEvaluation, strings.NewReader(readDoc("a", "")))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Content-Type": {"application/json"}, "Prefer": {preference}}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		var denied authzen.Decision
		if err != nil || json.Unmarshal(text, &denied) != nil || denied.Context == nil || denied.Context.AccessRequest == nil {
			t.Fatalf("answered %s, %v", text, err)
		}
		return string(text), denied
	}
	for _, preference := range []string{"", "wait=1", "return=representation", "return=minimalist"} {
		if _, denied := ask(preference); denied.Context.AccessRequest.BindingToken == "" {
			t.Errorf("%q: there is no token", preference)
		}
	}
	text, denied := ask("wait=1, Return=minimal")
	if denied.Context.AccessRequest.BindingToken != "" || len(text) > 300 {
		t.Errorf("a minimal answer is %s", text)
	}
	submission := fmt.Sprintf(`%s,"denial":{"expires_at":%q,"evaluation_id":%q}}`, strings.TrimSuffix(readDoc("a", ""), "}"), denied.Context.AccessRequest.ExpiresAt.Format(time.RFC3339), denied.Context.EvaluationID)
	if response, body := post(t, http.DefaultClient, s.main+authzen.PathRequests, submission); response.StatusCode != http.StatusAccepted {
		t.Errorf("asked by the evaluation: %s, %s", response.Status, body)
	}
}
