package pdp_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/jwks/jwkstest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// anybodyApproves is a store whose policies let everybody approve; pairs need two people. Only the
// service keeps people apart.
var anybodyApproves = fstest.MapFS{
	"policies.cedar": {Data: []byte(`
		@id("call") @approval("one") permit (principal, action == Action::"call", resource);
		@id("pair") @approval("two") permit (principal, action == Action::"pair", resource);
		@id("strict") @approval("strict") @reason_user("Whatever is strict needs a second person.") permit (principal, action == Action::"strict", resource);
		@id("approve") permit (principal, action in [Action::"approval.approve", Action::"approval.deny"], resource);
	`)},
	"config.yaml": {Data: []byte("approval_templates: {one: {ttl: 15m}, two: {quorum: 2}, strict: {step_up: true}}\n")},
}

// A staff is a service with API keys and tokens for people.
type staff struct {
	*service
	t        *testing.T
	provider *jwkstest.Issuer
}

const idp = "https://idp.example.com"

// hire starts a service with an issuer of tokens that may approve.
func hire(t *testing.T, change func(*pdp.Auth)) *staff {
	t.Helper()
	s := &staff{t: t, provider: jwkstest.New(t)}
	auth := pdp.Auth{
		APIKeys: []pdp.APIKey{{ID: "gateway", SHA256: digest("k-gateway")}, {ID: "auditor", SHA256: digest("k-auditor"), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeAudit}}}},
		JWT:     []pdp.Issuer{{Issuer: idp, Audience: "pdp", JWKSURL: s.provider.URL, Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeEvaluate, pdp.ScopeRequest, pdp.ScopeAdmin}}}},
	}
	for _, id := range []string{"carol", "dave"} {
		auth.APIKeys = append(auth.APIKeys, pdp.APIKey{ID: id, SHA256: digest("k-" + id), Grant: pdp.Grant{Scopes: []pdp.Scope{pdp.ScopeEvaluate, pdp.ScopeRequest, pdp.ScopeAdmin}}})
	}
	if change != nil {
		change(&auth)
	}
	s.service = start(t, pdp.Config{Policies: anybodyApproves, Auth: auth})
	return s
}

// key returns the API key of a person.
func key(id string) string { return "k-" + id }

// token returns a token of a person.
func (s *staff) token(sub string, more ...any) string {
	s.t.Helper()
	claims := map[string]any{"iss": idp, "aud": "pdp", "sub": sub, "exp": time.Now().Add(time.Hour).Unix()}
	for n := 0; n < len(more); n += 2 {
		claims[more[n].(string)] = more[n+1]
	}
	return jwkstest.Sign(s.t, jose.RS256, s.provider.Key, "k1", claims, nil)
}

// asked submits a request for a subject with properties and returns the task.
func (s *staff) asked(pep, action, subject, properties string) string {
	s.t.Helper()
	call := fmt.Sprintf(`{"subject":{"type":"user","id":%q,"properties":{%s}},"action":{"name":%q},"resource":{"type":"doc","id":"d"}`, subject, properties, action)
	var denied struct {
		Context struct {
			EvaluationID string `json:"evaluation_id"`
			Request      struct {
				ExpiresAt    string `json:"expires_at"`
				BindingToken string `json:"binding_token"`
			} `json:"access_request"`
		} `json:"context"`
	}
	if got := askAs(s.t, pep, "POST", s.main+authzen.PathEvaluation, call+"}", &denied); got != 200 {
		s.t.Fatalf("evaluation: %d", got)
	}
	var task authzen.TaskResponse
	submission := fmt.Sprintf(`%s,"denial":{"evaluation_id":%q,"expires_at":%q,"binding_token":%q}}`, call, denied.Context.EvaluationID, denied.Context.Request.ExpiresAt, denied.Context.Request.BindingToken)
	if got := askAs(s.t, pep, "POST", s.main+authzen.PathRequests, submission, &task); got != 202 {
		s.t.Fatalf("submit: %d", got)
	}
	return task.Task.ID
}

// approves votes for a task and returns the status.
func (s *staff) approves(who, task string) int {
	s.t.Helper()
	return askAs(s.t, who, "POST", s.admin+pdp.PathRequests+"/"+task+"/decision", `{"decision":"approve"}`, nil)
}

// votes counts the log entries that permit a vote, and those that refuse one.
func (s *staff) votes() (permits, refused int) {
	s.t.Helper()
	for _, line := range s.entries() {
		var e struct {
			Decision bool `json:"decision"`
			Request  struct {
				Event  string         `json:"event"`
				Action jsontext.Value `json:"action"` // of an evaluation, or the name of an act
			} `json:"request"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		switch {
		case e.Decision && string(e.Request.Action) == `{"name":"approval.approve"}`, e.Request.Event == "approve":
			permits++
		case e.Request.Event == "refuse":
			refused++
		}
	}
	return permits, refused
}

// entries returns the lines of the log.
func (s *staff) entries() []string {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), "GET", s.admin+pdp.PathLogExport, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer k-auditor")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	return slices.Collect(strings.Lines(readAll(s.t, response.Body)))
}

// Nobody approves their own request, under any credential, name or policy. The log has no permit
// for it.
func TestNobodyApprovesTheirOwnRequest(t *testing.T) {
	aliases := func(a *pdp.Auth) {
		a.Aliases = [][]string{{"alice", "alice@example.com", "8f2c"}, {"carol", "c-77"}}
	}
	full := func(a *pdp.Auth) { a.JWT[0].IDClaim = "iss#sub" }
	email := func(a *pdp.Auth) { a.JWT[0].IDClaim = "email" }
	claims := func(a *pdp.Auth) { a.JWT[0].AliasClaims = []string{"preferred_username"} }
	for _, test := range []struct {
		name                string
		auth                func(*pdp.Auth)
		pep                 func(*staff) string
		subject, properties string
		approver            func(*staff) string
	}{
		{"a token of the requester", nil, nil, "alice", "", func(s *staff) string { return s.token("alice") }},
		{"a token of the requester, known by issuer and subject", full, nil, "alice", "", func(s *staff) string { return s.token("alice") }},
		{"a token of the requester, who is known by address", email, nil, "alice", "", func(s *staff) string { return s.token("alice", "email", "a@example.com", "email_verified", true) }},
		{"a requester by issuer and subject", nil, nil, idp + "#alice", "", func(s *staff) string { return s.token("alice") }},
		{"a key of the requester", nil, nil, "carol", "", func(s *staff) string { return key("carol") }},
		{"an alias of the requester", aliases, nil, "alice@example.com", "", func(s *staff) string { return s.token("8f2c") }},
		{"an alias of the requester's key", aliases, nil, "c-77", "", func(s *staff) string { return key("carol") }},
		{"a claim with a name of the requester", claims, nil, "ali", "", func(s *staff) string { return s.token("8f2c", "preferred_username", "ali") }},
		{"a key asks, a token approves", nil, func(*staff) string { return key("carol") }, "agent-7", "", func(s *staff) string { return s.token("carol") }},
		{"a token asks, a key approves", nil, func(s *staff) string { return s.token("carol") }, "agent-7", "", func(s *staff) string { return key("carol") }},
		{"a token asks, a key approves, known by issuer and subject", full, func(s *staff) string { return s.token("carol") }, "agent-7", "", func(s *staff) string { return key("carol") }},
		{"an actor by issuer and subject", full, nil, "agent-7", `"act":{"sub":"bot","act":{"sub":"alice","iss":"` + idp + `"}}`, func(s *staff) string { return s.token("alice") }},
		{"an actor by subject", nil, nil, "agent-7", `"act":{"sub":"alice"}`, func(s *staff) string { return s.token("alice") }},
		{"an actor by one text of both", nil, nil, "agent-7", `"act":{"id":"` + idp + `#alice"}`, func(s *staff) string { return s.token("alice") }},
		{"an agent by a token of somebody else", nil, nil, "agent-7", "", func(s *staff) string { return s.token("erin", "act", map[string]any{"sub": "agent-7"}) }},
		{"an agent by its id, by a token of somebody else", nil, nil, "agent-7", "", func(s *staff) string { return s.token("erin", "act", map[string]any{"id": "agent-7"}) }},
		{"an agent's client, by a token of somebody else", nil, nil, "agent-7", "", func(s *staff) string { return s.token("erin", "azp", "agent-7") }},
		{"an actor's client, by a token of somebody else", nil, nil, "alice", `"act":{"sub":"app"}`, func(s *staff) string { return s.token("erin", "client_id", "app") }},
		{"a PEP's client, by a token of somebody else", nil, nil, "alice", "", func(s *staff) string { return s.token("erin", "client_id", "gateway") }},
		{"another letter case", nil, nil, "alice", "", func(s *staff) string { return s.token("Alice") }},
		{"letters that are composed", nil, nil, "rene\u0301", "", func(s *staff) string { return s.token("ren\u00e9") }},
		{"wide letters and blanks", nil, nil, "\uff41lice ", "", func(s *staff) string { return s.token("alice") }},
		{"a character without a shape", nil, nil, "ali\u200bce", "", func(s *staff) string { return s.token("alice") }},
		{"an actor in another letter case", nil, nil, "bot", `"act":{"sub":"Alice"}`, func(s *staff) string { return s.token("alice") }},
		{"an alias of an actor", aliases, nil, "agent-7", `"act":{"id":"bot","act":{"id":"alice@example.com"}}`, func(s *staff) string { return s.token("8f2c") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := hire(t, test.auth)
			pep := key("gateway")
			if test.pep != nil {
				pep = test.pep(s)
			}
			task := s.asked(pep, "call", test.subject, test.properties)
			if got := s.approves(test.approver(s), task); got != 403 {
				t.Errorf("their own: %d", got)
			}
			if permits, refused := s.votes(); permits != 0 || refused != 1 {
				t.Errorf("the log has %d permits and %d refused votes", permits, refused)
			}
			if got := s.approves(key("dave"), task); got != 200 {
				t.Errorf("somebody else: %d", got)
			}
		})
	}
}

// Nobody hands a request to its requester by another of the requester's names.
func TestAliasOfTheRequesterGetsNoDelegation(t *testing.T) {
	s := hire(t, func(a *pdp.Auth) { a.Aliases = [][]string{{"dave@example.com", "dave-laptop"}} })
	task := s.asked(key("gateway"), "call", "dave@example.com", "")
	for _, to := range []string{"dave@example.com", "dave-laptop", "Dave-Laptop"} {
		status, answer := s.send(key("carol"), "POST", pdp.PathRequests+"/"+task+"/decision", fmt.Sprintf(`{"decision":"delegate","to":{"type":"user","id":%q}}`, to))
		if status != 400 || !strings.Contains(answer, "/to is the requester") {
			t.Errorf("to %s: %d %s", to, status, answer)
		}
	}
}

// The caller of an entry is the one whose credential acted: the PEP for a request, the approver for
// a vote and for the questions to policies.
func TestEntriesHaveTheActingCaller(t *testing.T) {
	s := hire(t, nil)
	lifted, own, refused := s.asked(key("gateway"), "call", "alice", ""), s.asked(key("gateway"), "call", "dave", ""), s.asked(key("gateway"), "call", "bob", "")
	for _, vote := range []struct{ who, task, decision string }{{"carol", lifted, "approve"}, {"dave", own, "approve"}, {"dave", refused, "deny"}} {
		askAs(t, key(vote.who), "POST", s.admin+pdp.PathRequests+"/"+vote.task+"/decision", `{"decision":"`+vote.decision+`"}`, nil)
	}
	got := map[string][]string{}
	for _, line := range s.entries() {
		var e struct {
			Caller  string `json:"caller"`
			Request struct {
				Event  string         `json:"event"`
				Action authzen.Action `json:"action"`
			} `json:"request"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		what := cmp.Or(e.Request.Event, e.Request.Action.Name)
		got[what] = append(got[what], e.Caller)
	}
	delete(got, "") // entry of the start
	want := map[string][]string{
		"call": {"gateway", "gateway", "gateway"}, "submit": {"gateway", "gateway", "gateway"},
		"approval.approve": {"carol"}, "approve": {"carol"}, "refuse": {"dave"}, "approval.deny": {"dave"}, "deny": {"dave"},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("callers by what happened (-want +got):\n%s", diff)
	}
}

// A vote in another person's name fails, and the error names the owner of the credential.
func TestApproverMustBeTheCaller(t *testing.T) {
	s := hire(t, nil)
	task := s.asked(key("gateway"), "call", "alice", "")
	verdict := strings.NewReader(`{"decision":"approve","approver":{"type":"user","id":"dave"}}`)
	request, err := http.NewRequestWithContext(t.Context(), "POST", s.admin+pdp.PathRequests+"/"+task+"/decision", verdict)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key("carol"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body := readAll(t, response.Body)
	const want = "the credential is not the approver's: it is of user:carol, and the approver is to be user:dave; leave the approver out (--as), or send the credential of who decides"
	if response.StatusCode != 403 || !strings.Contains(body, want) {
		t.Errorf("%s %s, want %q", response.Status, body, want)
	}
}

// A quorum counts people, not credentials. The log has no permit for a second vote.
func TestQuorumCountsPeople(t *testing.T) {
	aliases := func(a *pdp.Auth) { a.Aliases = [][]string{{"carol", "c-77"}} }
	full := func(a *pdp.Auth) { a.JWT[0].IDClaim = "iss#sub" }
	for _, test := range []struct {
		name          string
		auth          func(*pdp.Auth)
		first, second func(*staff) string
	}{
		{"a key and a token", nil, func(*staff) string { return key("carol") }, func(s *staff) string { return s.token("carol") }},
		{"a token and a key", nil, func(s *staff) string { return s.token("carol") }, func(*staff) string { return key("carol") }},
		{"a key and a token, known by issuer and subject", full, func(*staff) string { return key("carol") }, func(s *staff) string { return s.token("carol") }},
		{"a key and an alias", aliases, func(*staff) string { return key("carol") }, func(s *staff) string { return s.token("c-77") }},
		{"one agent by the tokens of two people", nil, func(s *staff) string { return s.token("carol", "act", map[string]any{"sub": "bot"}) },
			func(s *staff) string { return s.token("erin", "act", map[string]any{"sub": "bot"}) }},
		{"another letter case", nil, func(*staff) string { return key("carol") }, func(s *staff) string { return s.token("CAROL") }},
		{"the same key", nil, func(*staff) string { return key("carol") }, func(*staff) string { return key("carol") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := hire(t, test.auth)
			task := s.asked(key("gateway"), "pair", "alice", "")
			if got := s.approves(test.first(s), task); got != 200 {
				t.Errorf("the first vote: %d", got)
			}
			if got := s.approves(test.second(s), task); got != 409 {
				t.Errorf("the same person again: %d", got)
			}
			if permits, _ := s.votes(); permits != 2 { // one permit of the policies, and one vote
				t.Errorf("the log has %d permits", permits)
			}
			var status authzen.TaskResponse
			if askAs(t, key("gateway"), "GET", s.main+authzen.PathRequests+"/"+task, "", &status); status.Task.Status != authzen.TaskPending {
				t.Errorf("after one person the task is %s", status.Task.Status)
			}
			if got := s.approves(key("dave"), task); got != 200 {
				t.Errorf("a second person: %d", got)
			}
			if askAs(t, key("gateway"), "GET", s.main+authzen.PathRequests+"/"+task, "", &status); status.Task.Status != authzen.TaskApproved {
				t.Errorf("after two people the task is %s", status.Task.Status)
			}
		})
	}
}

// People may approve through a shared client, including that of the request.
func TestApproversMayShareAClient(t *testing.T) {
	s := hire(t, nil)
	task := s.asked(s.token("alice", "azp", "portal"), "pair", "alice", "")
	for _, approver := range []string{"erin", "frank"} {
		if got := s.approves(s.token(approver, "azp", "portal"), task); got != 200 {
			t.Errorf("%s: %d", approver, got)
		}
	}
}

// A token with actors that cannot be parsed can neither request nor approve. Other uses work.
func TestUnknownActorsCannotApprove(t *testing.T) {
	s := hire(t, nil)
	task := s.asked(key("gateway"), "call", "alice", "")
	for name, claims := range map[string][]any{
		"nobody":           {"act", map[string]any{}},
		"an empty name":    {"act", map[string]any{"sub": ""}},
		"two names":        {"act", map[string]any{"sub": "a", "id": "b"}},
		"a number":         {"act", map[string]any{"id": 7}},
		"nobody behind":    {"act", map[string]any{"sub": "a", "act": map[string]any{"iss": idp}}},
		"words behind":     {"act", map[string]any{"sub": "a", "act": "b"}},
		"a list of client": {"azp", []string{"a"}},
	} {
		token := s.token("erin", claims...)
		for path, body := range map[string]string{
			s.admin + pdp.PathRequests + "/" + task + "/decision": `{"decision":"approve"}`,
			s.main + authzen.PathRequests:                         `{"subject":{"type":"user","id":"u"},"action":{"name":"call"},"resource":{"type":"doc","id":"d"}}`,
		} {
			request, err := http.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+token)
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			told := readAll(t, response.Body)
			response.Body.Close()
			if response.StatusCode != 403 || !strings.Contains(told, "the actors of the token cannot be parsed") {
				t.Errorf("%s: %s: %d %s", name, path, response.StatusCode, told)
			}
		}
		if got := askAs(t, token, "POST", s.main+authzen.PathEvaluation, `{"subject":{"type":"user","id":"u"},"action":{"name":"call"},"resource":{"type":"doc","id":"d"}}`, nil); got != 200 {
			t.Errorf("%s: evaluation: %d", name, got)
		}
	}
}

// The actors of an actor are read in every format of a request.
func TestActorsOfAuthorize(t *testing.T) {
	s := hire(t, nil)
	request := `{"tenant_id":"acme","actor":{"actor_id":"bot","actor_type":"agent","act":%s},"action":"call","resource":{"type":"doc","id":"d"}}`
	ask := func(act string) (task string, status int) {
		var answer authzen.AuthorizeResponse
		if got := askAs(t, key("gateway"), "POST", s.main+authzen.PathAuthorize, fmt.Sprintf(request, act), &answer); got != 200 || !answer.Obligations.ApprovalRequired {
			t.Fatalf("authorize: %d %+v", got, answer)
		}
		terms, err := json.Marshal(answer.Approval)
		if err != nil {
			t.Fatal(err)
		}
		var made authzen.TaskResponse
		status = askAs(t, key("gateway"), "POST", s.main+authzen.PathApprovals, fmt.Sprintf(`{"request":`+request+`,"approval":%s}`, act, terms), &made)
		return made.Task.ID, status
	}
	task, _ := ask(`{"sub":"alice"}`)
	if got := s.approves(s.token("alice"), task); got != 403 {
		t.Errorf("who acts: %d", got)
	}
	if got := s.approves(key("dave"), task); got != 200 {
		t.Errorf("somebody else: %d", got)
	}
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A vote names the kind of the approver's credential, and what a token says about the sign-in.
func TestVotesNameTheCredential(t *testing.T) {
	s := hire(t, nil)
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	for _, test := range []struct {
		name, credential string
		want             approval.Authn
	}{
		{"key", key("carol"), approval.Authn{Method: "api_key"}},
		{"token", s.token("erin"), approval.Authn{Method: "jwt", Issuer: idp, Subject: "erin"}},
		{"token with a sign-in", s.token("erin", "acr", "phr", "amr", []string{"hwk", "user"}, "auth_time", at.Unix()),
			approval.Authn{Method: "jwt", Issuer: idp, Subject: "erin", ACR: "phr", AMR: []string{"hwk", "user"}, Time: at}},
		{"token with claims of other types", s.token("erin", "acr", 3, "amr", map[string]any{}, "auth_time", "noon"),
			approval.Authn{Method: "jwt", Issuer: idp, Subject: "erin"}},
	} {
		task := s.asked(key("gateway"), "call", "alice", "")
		var out pdp.AccessRequest
		if got := askAs(t, test.credential, "POST", s.admin+pdp.PathRequests+"/"+task+"/decision", `{"decision":"approve"}`, &out); got != 200 {
			t.Errorf("%s: %d", test.name, got)
			continue
		}
		if diff := gocmp.Diff(&test.want, out.Items[0].Votes[0].Authn); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
