package pdp_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// send sends a request with a credential to the admin listener and returns the answer.
func (s *staff) send(credential, method, path, body string) (status int, answer string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.admin+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+credential)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, readAll(s.t, response.Body)
}

// A request has the digest of its sheet, which is that of the bytes of the sheet. A vote for another
// sheet is refused and does not count.
func TestVoteForWhatWasShown(t *testing.T) {
	s := hire(t, nil)
	task := s.asked(key("gateway"), "call", "alice", `"api_key":"sk-live-1"`)
	path := s.admin + pdp.PathRequests + "/" + task
	var shown pdp.AccessRequest
	if got := askAs(t, key("carol"), "GET", path, "", &shown); got != 200 {
		t.Fatalf("show: %d", got)
	}
	_, sheet := s.send(key("carol"), "GET", pdp.PathRequests+"/"+task+"/sheet", "")
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(sheet))); shown.Sheet != want {
		t.Errorf("the digest is %q, and that of the sheet %s:\n%s", shown.Sheet, want, sheet)
	}
	if strings.Contains(sheet, "sk-live-1") || !strings.Contains(sheet, "masked:") {
		t.Errorf("the sheet shows a secret: %s", sheet)
	}
	other := `{"decision":"approve","sheet":"sha256:` + strings.Repeat("0", 64) + `"}`
	if got, answer := s.send(key("carol"), "POST", pdp.PathRequests+"/"+task+"/decision", other); got != 409 || !strings.Contains(answer, `"the request is not the one that was shown"`) {
		t.Errorf("another sheet: %d %q", got, answer)
	}
	if permits, votes := s.votes(); permits+votes != 0 {
		t.Errorf("the log has %d permits and %d refused votes", permits, votes)
	}
	var decided pdp.AccessRequest
	if got := askAs(t, key("carol"), "POST", path+"/decision", fmt.Sprintf(`{"decision":"approve","sheet":%q}`, shown.Sheet), &decided); got != 200 || decided.Items[0].Votes[0].Sheet != shown.Sheet || decided.Sheet != shown.Sheet {
		t.Errorf("the right sheet: %d %+v", got, decided)
	}
	for _, line := range s.entries() {
		if strings.Contains(line, `"event":"approve"`) && !strings.Contains(line, fmt.Sprintf(`"sheet":%q`, shown.Sheet)) {
			t.Errorf("the entry of the vote has no sheet: %s", line)
		}
	}
}

// A request says what the caller can do with it, by the policies, and the question leaves no entry.
func TestRequestSaysWhatTheCallerMay(t *testing.T) {
	s := hire(t, nil)
	task := s.asked(key("gateway"), "call", "alice", "")
	path := s.admin + pdp.PathRequests + "/" + task
	before := len(s.entries())
	for _, test := range []struct {
		name, credential string
		may              []string
		why              string
	}{
		{"an approver", key("carol"), []string{"approve", "deny"}, ""},
		{"the requester", s.token("alice"), nil, "own_request"},
		{"an approver whose actors are unknown", s.token("erin", "act", map[string]any{}), nil, ""},
	} {
		var shown pdp.AccessRequest
		if got := askAs(t, test.credential, "GET", path, "", &shown); got != 200 {
			t.Errorf("%s: %d", test.name, got)
		}
		if diff := gocmp.Diff(test.may, shown.May); diff != "" || shown.WhyNot != test.why {
			t.Errorf("%s: %q (-want +got):\n%s", test.name, shown.WhyNot, diff)
		}
	}
	if after := len(s.entries()); after != before {
		t.Errorf("the log grew from %d to %d entries", before, after)
	}
	if got := askAs(t, key("carol"), "GET", path+"?as=user:dave", "", nil); got != 403 {
		t.Errorf("as somebody else: %d", got)
	}
}

// If callers are not authenticated, the query names who would decide.
func TestViewAsApprover(t *testing.T) {
	s := start(t, pdp.Config{Policies: anybodyApproves})
	task := (&staff{service: s, t: t}).asked("", "call", "alice", "")
	for _, test := range []struct {
		query  string
		status int
		may    []string
		why    string
	}{
		{"", 200, nil, ""},
		{"?as=user:carol", 200, []string{"approve", "deny"}, ""},
		{"?as=user:alice", 200, nil, "own_request"},
		{"?as=carol", 400, nil, ""},
		{"?as=user:", 400, nil, ""},
		{"?who=user:carol", 400, nil, ""},
	} {
		var shown pdp.AccessRequest
		got := askAs(t, "", "GET", s.admin+pdp.PathRequests+"/"+task+test.query, "", &shown)
		if diff := gocmp.Diff(test.may, shown.May); got != test.status || diff != "" || shown.WhyNot != test.why {
			t.Errorf("%q: %d %q (-want +got):\n%s", test.query, got, shown.WhyNot, diff)
		}
	}
}

// A masked value is shown to those who may decide, when the entry about that is in the log. The value
// itself is in no entry.
func TestReveal(t *testing.T) {
	s := hire(t, nil)
	task := s.asked(key("gateway"), "call", "alice", `"api_key":"sk-live-1","tokens":["tk-1","tk-2"],"urls":["https://u:pw-live@h/","https://h/"],"note":"masked:AAAA"`)
	path := pdp.PathRequests + "/" + task + "/reveal"
	const secret = `{"path":"/subject/properties/api_key"}`
	for _, test := range []struct {
		name, credential, body string
		status                 int
		want                   string
	}{
		{"who may decide", key("carol"), secret, 200, `{"path":"/subject/properties/api_key","value":"sk-live-1"}`},
		{"an element", key("carol"), `{"path":"/subject/properties/urls/0"}`, 200, `{"path":"/subject/properties/urls/0","value":"https://u:pw-live@h/"}`},
		{"a masked array", key("carol"), `{"path":"/subject/properties/tokens"}`, 200, `{"path":"/subject/properties/tokens","value":["tk-1","tk-2"]}`},
		{"a part of a masked array", key("carol"), `{"path":"/subject/properties/tokens/0"}`, 400, "/path is no place"},
		{"an element that is not masked", key("carol"), `{"path":"/subject/properties/urls/1"}`, 400, "/path is no place"},
		{"a text like a mask", key("carol"), `{"path":"/subject/properties/note"}`, 400, "/path is no place"},
		{"a value that is not masked", key("carol"), `{"path":"/subject/id"}`, 400, "/path is no place"},
		{"an array with a masked value", key("carol"), `{"path":"/subject/properties/urls"}`, 400, "/path is no place"},
		{"an object with masked values", key("carol"), `{"path":"/subject"}`, 400, "/path is no place"},
		{"an item", key("carol"), `{"path":"/items/0"}`, 400, "/path is no place"},
		{"the requester", s.token("alice"), secret, 403, "may not decide"},
		{"a PEP", key("gateway"), secret, 403, "scope"},
		{"no place", key("carol"), `{"path":"/subject/properties/none"}`, 400, "/path is no place"},
		{"no element", key("carol"), `{"path":"/subject/properties/urls/2"}`, 400, "/path is no place"},
		{"everything", key("carol"), `{"path":""}`, 400, "/path is no place"},
		{"no pointer", key("carol"), `{"path":"subject"}`, 400, "/path is no place"},
		{"another member", key("carol"), `{"pointer":"/subject"}`, 400, "/pointer is not known"},
	} {
		if status, answer := s.send(test.credential, "POST", path, test.body); status != test.status || !strings.Contains(answer, test.want) {
			t.Errorf("%s: %d %s", test.name, status, answer)
		}
	}
	var reveals []string
	for _, line := range s.entries() {
		if strings.Contains(line, "sk-live-1") {
			t.Errorf("the log shows the secret: %s", line)
		}
		if strings.Contains(line, `"action":"reveal"`) {
			reveals = append(reveals, line)
		}
	}
	if len(reveals) != 3 || !strings.Contains(reveals[0], `"kind":"admin"`) || !strings.Contains(reveals[0], `"by":"user:carol","task":"`+task+`","path":"/subject/properties/api_key"`) || !strings.Contains(reveals[0], `"method":"api_key"`) {
		t.Errorf("the log has %q", reveals)
	}
	if got := s.approves(key("dave"), task); got != 200 {
		t.Fatal(got)
	}
	if status, answer := s.send(key("carol"), "POST", path, secret); status != 403 {
		t.Errorf("after the decision: %d %s", status, answer)
	}
}

// The token of a vote, which is a credential, is stored beside it and in no answer.
func TestNoAnswerHasTheTokenOfAVote(t *testing.T) {
	state := t.TempDir()
	s := &staff{service: start(t, pdp.Config{Policies: anybodyApproves, State: state}), t: t}
	task := s.asked("", "pair", "alice", "")
	s.stop(t)
	desk, err := approval.Open(state, approval.Config{
		CanApprove: func(context.Context, approval.Check) (bool, error) { return true, nil },
		Record:     func(context.Context, approval.Record) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	by := approval.Approver{Subject: authzen.Subject{Type: "user", ID: "carol"}, IDToken: "a-token-of-carol", Authn: &approval.Authn{Method: approval.MethodOIDC, Token: "sha256:2c26"}}
	r, err := desk.Decide(t.Context(), task, by, approval.Decision{Decision: "approve"})
	if err != nil || r.Items[0].Votes[0].IDToken != by.IDToken {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := desk.Close(); err != nil {
		t.Fatal(err)
	}
	s.service = start(t, pdp.Config{Policies: anybodyApproves, State: state})
	path := pdp.PathRequests + "/" + task
	for method, at := range map[string]string{"GET": path, "get list": pdp.PathRequests, "POST": path + "/decision"} {
		status, answer := s.send("", strings.ToUpper(strings.TrimSuffix(method, " list")), at, `{"decision":"approve","approver":{"type":"user","id":"dave"}}`)
		if status != 200 || strings.Contains(answer, by.IDToken) || strings.Contains(answer, "id_token") || !strings.Contains(answer, `"token_digest":"sha256:2c26"`) {
			t.Errorf("%s %s: %d %s", method, at, status, answer)
		}
	}
}
