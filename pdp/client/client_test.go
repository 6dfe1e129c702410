package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// serve answers every request with the handler until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// says returns a handler that answers 200 with a JSON body.
func says(body string) http.HandlerFunc {
	return answers(http.StatusOK, "application/json", body)
}

func answers(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

var request = &authzen.EvaluationRequest{
	Subject:  authzen.Subject{Type: "user", ID: "alice"},
	Action:   authzen.Action{Name: "read"},
	Resource: authzen.Resource{Type: "record", ID: "record-1", Properties: jsontext.Value(`{"status":"active"}`)},
}

// batch returns a batch of two requests.
func batch(semantic authzen.Semantic) *authzen.EvaluationsRequest {
	return &authzen.EvaluationsRequest{
		Subject:     jsontext.Value(`{"type":"user","id":"alice"}`),
		Resource:    jsontext.Value(`{"type":"record","id":"record-1"}`),
		Evaluations: []jsontext.Value{jsontext.Value(`{"action":{"name":"read"}}`), jsontext.Value(`{"action":{"name":"write"}}`)},
		Options:     authzen.Options{Semantic: semantic},
	}
}

var authorizeRequest = &authzen.AuthorizeRequest{
	TenantID: "acme",
	Actor:    authzen.Actor{ActorID: "agent-1", ActorType: "agent"},
	Action:   "tool.invoke",
	Resource: authzen.AuthorizeResource{Type: "tool", ID: "db.query"},
}

func TestEvaluate(t *testing.T) {
	var sent *http.Request
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent = r
		body, _ = io.ReadAll(r.Body)
		says(`{"future":1,"decision":true,"context":{"obligations":[{"id":"o1","type":"notification","properties":{"to":"x"}}],"more":{}}}`)(w, r)
	})
	pdp := client.New(url+"/tenants/acme/", client.Config{
		Bearer:    "key",
		RequestID: func(context.Context) string { return "r-1" },
		Header: func(_ context.Context, h http.Header) error {
			h.Set("Traceparent", "00-1-2-01")
			return nil
		},
	})
	got, err := pdp.Evaluate(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	want := &authzen.Decision{Decision: true, Context: &authzen.DecisionContext{
		Obligations: []authzen.Obligation{{ID: "o1", Type: "notification", Properties: jsontext.Value(`{"to":"x"}`)}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	wantBody := `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1","properties":{"status":"active"}}}`
	if diff := cmp.Diff(wantBody, string(body)); diff != "" {
		t.Errorf("request body (-want +got):\n%s", diff)
	}
	if sent.Method != "POST" || sent.URL.Path != "/tenants/acme/access/v1/evaluation" {
		t.Errorf("asked %s %s", sent.Method, sent.URL.Path)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "Authorization": "Bearer key",
		"X-Request-Id": "r-1", "Traceparent": "00-1-2-01",
	} {
		if got := sent.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

func TestEvaluations(t *testing.T) {
	permit, deny := authzen.Decision{Decision: true}, authzen.Decision{}
	none := &authzen.EvaluationsRequest{Subject: jsontext.Value(`{"type":"user","id":"alice"}`)}
	for name, tt := range map[string]struct {
		request *authzen.EvaluationsRequest
		answer  string
		want    *authzen.EvaluationsResponse
	}{
		"all": {batch(""), `{"evaluations":[{"decision":true},{"decision":false}]}`,
			&authzen.EvaluationsResponse{Evaluations: []authzen.Decision{permit, deny}}},
		"all by name": {batch(authzen.ExecuteAll), `{"evaluations":[{"decision":false},{"decision":false}]}`,
			&authzen.EvaluationsResponse{Evaluations: []authzen.Decision{deny, deny}}},
		"a decision beside them": {batch(""), `{"decision":true,"evaluations":[{"decision":false},{"decision":true}]}`,
			&authzen.EvaluationsResponse{Evaluations: []authzen.Decision{deny, permit}}},
		"first deny": {batch(authzen.DenyOnFirstDeny), `{"evaluations":[{"decision":false}]}`,
			&authzen.EvaluationsResponse{Evaluations: []authzen.Decision{deny}}},
		"no deny": {batch(authzen.DenyOnFirstDeny), `{"evaluations":[{"decision":true},{"decision":true}]}`,
			&authzen.EvaluationsResponse{Evaluations: []authzen.Decision{permit, permit}}},
		"first permit": {batch(authzen.PermitOnFirstPermit), `{"evaluations":[{"decision":true}]}`,
			&authzen.EvaluationsResponse{Evaluations: []authzen.Decision{permit}}},
		"without items": {none, `{"decision":true}`, &authzen.EvaluationsResponse{Decision: &permit}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := client.New(serve(t, says(tt.answer)), client.Config{}).Evaluations(t.Context(), tt.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuthorize(t *testing.T) {
	for answer, want := range map[string]*authzen.AuthorizeResponse{
		`{"allow":false,"obligations":{}}`: {},
		`{"allow":true,"obligations":{"approval_required":true},"approval":{"template":"sre"},"reason":"ask"}`: {
			Allow: true, Obligations: authzen.AuthorizeObligations{ApprovalRequired: true},
			Approval: &authzen.ApprovalTerms{Template: "sre"}, Reason: "ask",
		},
	} {
		got, err := client.New(serve(t, says(answer)), client.Config{}).Authorize(t.Context(), authorizeRequest)
		if err != nil {
			t.Errorf("%s: %v", answer, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", answer, diff)
		}
	}
}

func TestMetadata(t *testing.T) {
	var asked string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		self := "http://" + r.Host + "/tenants/acme"
		says(`{"policy_decision_point":"`+self+`","access_evaluation_endpoint":"`+self+`/e","new":[]}`)(w, r)
	}) + "/tenants/acme"
	got, err := client.New(url, client.Config{Bearer: "key"}).Metadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &authzen.Metadata{PolicyDecisionPoint: url, AccessEvaluationEndpoint: url + "/e"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if want := "GET /.well-known/authzen-configuration/tenants/acme "; asked != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if _, err := client.New(url+"/", client.Config{}).Metadata(t.Context()); err == nil {
		t.Error("a document of another identifier was taken")
	}
}

// calls are the four calls of a Client. Each returns whether there was an answer.
var calls = map[string]func(context.Context, *client.Client) (bool, error){
	"Evaluate": func(ctx context.Context, c *client.Client) (bool, error) {
		got, err := c.Evaluate(ctx, request)
		return got != nil, err
	},
	"Evaluations": func(ctx context.Context, c *client.Client) (bool, error) {
		got, err := c.Evaluations(ctx, batch(""))
		return got != nil, err
	},
	"Authorize": func(ctx context.Context, c *client.Client) (bool, error) {
		got, err := c.Authorize(ctx, authorizeRequest)
		return got != nil, err
	},
	"Metadata": func(ctx context.Context, c *client.Client) (bool, error) {
		got, err := c.Metadata(ctx)
		return got != nil, err
	},
}

// yes answers each call with a permit.
func yes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, yesBody(r.Host))
}

func yesBody(host string) string {
	self := "http://" + host
	return `{"decision":true,"evaluations":[{"decision":true},{"decision":true}],"allow":true,"obligations":{},` +
		`"policy_decision_point":"` + self + `","access_evaluation_endpoint":"` + self + `/e"}`
}

func TestCompleteAnswersAreAccepted(t *testing.T) {
	pdp := client.New(serve(t, yes), client.Config{})
	for name, call := range calls {
		if answered, err := call(t.Context(), pdp); err != nil || !answered {
			t.Errorf("%s: answered %v, %v", name, answered, err)
		}
	}
}

// Every server here sends a permit in an invalid form.
func TestFailsClosed(t *testing.T) {
	elsewhere := serve(t, yes)
	for name, handler := range map[string]http.HandlerFunc{
		"created":                  status(http.StatusCreated),
		"no content":               answers(http.StatusNoContent, "application/json", ""),
		"bad request":              status(http.StatusBadRequest),
		"unauthorized":             status(http.StatusUnauthorized),
		"server error":             status(http.StatusInternalServerError),
		"redirect found":           redirect(elsewhere, http.StatusFound),
		"redirect keep the method": redirect(elsewhere, http.StatusTemporaryRedirect),
		"text":                     as("text/plain"),
		"problem":                  as("application/problem+json"),
		"no type":                  as(""),
		"broken type":              as("application/json; charset"),
		"empty":                    rewritten(func(string) string { return "" }),
		"null":                     rewritten(func(string) string { return "null" }),
		"array":                    rewritten(func(yes string) string { return "[" + yes + "]" }),
		"broken off":               rewritten(func(yes string) string { return yes[:len(yes)-1] }),
		"two answers":              rewritten(func(yes string) string { return yes + yes }),
		"trailing text":            rewritten(func(yes string) string { return yes + "x" }),
		"not UTF-8":                rewritten(func(yes string) string { return yes[:len(yes)-1] + ",\"x\":\"\xff\"}" }),
		"name twice":               rewritten(func(yes string) string { return yes[:len(yes)-1] + `,"x":1,"x":2}` }),
		"name twice escaped":       rewritten(func(yes string) string { return yes[:len(yes)-1] + `,"d\u0065cision":true}` }),
		"huge":                     rewritten(func(yes string) string { return yes + strings.Repeat(" ", client.DefaultMaxResponseBytes) }),
		"shorter than announced":   shortened,
		"another's answer":         echoing("r-2"),
	} {
		t.Run(name, func(t *testing.T) {
			pdp := client.New(serve(t, handler), client.Config{RequestID: func(context.Context) string { return "r-1" }})
			for name, call := range calls {
				refuse(t, name, call, pdp)
			}
		})
	}
}

func refuse(t *testing.T, name string, call func(context.Context, *client.Client) (bool, error), pdp *client.Client) {
	t.Helper()
	switch answered, err := call(t.Context(), pdp); {
	case err == nil:
		t.Errorf("%s: no error", name)
	case answered:
		t.Errorf("%s: an answer beside %v", name, err)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answers(code, "application/json", yesBody(r.Host))(w, r)
	}
}

func as(contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{contentType}
		io.WriteString(w, yesBody(r.Host))
	}
}

func redirect(to string, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.Path, code)
	}
}

func rewritten(change func(yes string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		says(change(yesBody(r.Host)))(w, r)
	}
}

func shortened(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "100000")
	yes(w, r)
}

func echoing(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-ID", id)
		yes(w, r)
	}
}

// A PDP that does not answer in time has not answered, whether silent or endless.
func TestTimeout(t *testing.T) {
	for name, first := range map[string]string{"silent": "", "endless": `{"decision":true,"evaluations":[`} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // otherwise the server does not notice the disconnect
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, first)
				if first != "" {
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			})
			pdp := client.New(url, client.Config{Timeout: 50 * time.Millisecond})
			for name, call := range calls {
				refuse(t, name, call, pdp)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := client.New(url, client.Config{Timeout: time.Hour}).Evaluate(ctx, request); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the context ended, and the error is %v", err)
			}
		})
	}
}

func TestUnreachablePDP(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	for _, url := range []string{server.URL, "", "://", "ftp://pdp.example.com"} {
		for name, call := range calls {
			refuse(t, url+" "+name, call, client.New(url, client.Config{}))
		}
	}
}

func TestHeaderFails(t *testing.T) {
	pdp := client.New(serve(t, yes), client.Config{
		Header: func(context.Context, http.Header) error { return errors.New("no token") },
	})
	for name, call := range calls {
		refuse(t, name, call, pdp)
	}
}

// Answered gets the header of a complete answer and of no other.
func TestAnswered(t *testing.T) {
	var entries []string
	cfg := client.Config{Answered: func(_ context.Context, h http.Header) { entries = append(entries, h.Get("Decision-ID")) }}
	for _, answer := range []http.HandlerFunc{yes, says(`{"decision":"true"}`), says(`{"decision":false}`)} {
		_, _ = client.New(serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Decision-ID", "entry")
			answer(w, r)
		}), cfg).Evaluate(t.Context(), request)
	}
	if diff := cmp.Diff([]string{"entry", "entry"}, entries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An incomplete decision is an error, also because of its obligations (OB-60 in
// conformance/testdata/rows.txt).
func TestNoDecision(t *testing.T) {
	for _, body := range []string{
		`{}`,
		`{"Decision":true}`,
		`{"decision":null}`,
		`{"decision":"true"}`,
		`{"decision":1}`,
		`{"decision":{"decision":true}}`,
		`{"evaluations":[{"decision":true}]}`,
		`{"decision":true,"context":[]}`,
		`{"decision":true,"context":"none"}`,
		`{"decision":true,"context":{"obligations":{}}}`,
		`{"decision":true,"context":{"obligations":[null]}}`,
		`{"decision":true,"context":{"obligations":[{"type":"notification","properties":{}}]}}`,
		`{"decision":true,"context":{"obligations":[{"id":"o1","properties":{}}]}}`,
		`{"decision":true,"context":{"obligations":[{"id":"o1","type":"notification"}]}}`,
		`{"decision":true,"context":{"obligations":[{"id":"o1","type":"notification","properties":[]}]}}`,
		`{"decision":true,"context":{"obligations":[{"id":"o1","type":"a","properties":{}},{"id":"o1","type":"b","properties":{}}]}}`,
	} {
		got, err := client.New(serve(t, says(body)), client.Config{}).Evaluate(t.Context(), request)
		if err == nil || got != nil {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

func TestNoBatch(t *testing.T) {
	for _, tt := range []struct {
		semantic authzen.Semantic
		body     string
	}{
		{"", `{"decision":true}`},
		{"", `{"evaluations":null}`},
		{"", `{"evaluations":[]}`},
		{"", `{"evaluations":{"decision":true}}`},
		{"", `{"evaluations":[{"decision":true}]}`},
		{"", `{"evaluations":[{"decision":true},{}]}`},
		{"", `{"evaluations":[{"decision":true},null]}`},
		{"", `{"evaluations":[{"decision":true},true]}`},
		{"", `{"evaluations":[{"decision":true},{"decision":"true"}]}`},
		{"", `{"evaluations":[{"decision":true},{"decision":true},{"decision":true}]}`},
		{authzen.DenyOnFirstDeny, `{"evaluations":[{"decision":true}]}`},
		{authzen.DenyOnFirstDeny, `{"evaluations":[{"decision":false},{"decision":true}]}`},
		{authzen.DenyOnFirstDeny, `{"evaluations":[{"decision":true},{"decision":true},{"decision":false}]}`},
		{authzen.PermitOnFirstPermit, `{"evaluations":[{"decision":false}]}`},
		{authzen.PermitOnFirstPermit, `{"evaluations":[{"decision":true},{"decision":true}]}`},
	} {
		got, err := client.New(serve(t, says(tt.body)), client.Config{}).Evaluations(t.Context(), batch(tt.semantic))
		if err == nil || got != nil {
			t.Errorf("%s %s: %+v, %v", tt.semantic, tt.body, got, err)
		}
	}
}

func TestNoAllow(t *testing.T) {
	for _, body := range []string{
		`{"obligations":{}}`,
		`{"allow":null,"obligations":{}}`,
		`{"allow":"true","obligations":{}}`,
		`{"allow":true}`,
		`{"allow":true,"obligations":null}`,
		`{"allow":true,"obligations":[]}`,
		`{"allow":true,"obligations":{"dance":true}}`,
		`{"allow":true,"obligations":{"approval_required":"yes"}}`,
	} {
		got, err := client.New(serve(t, says(body)), client.Config{}).Authorize(t.Context(), authorizeRequest)
		if err == nil || got != nil {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

func TestStatusError(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"status":403,"message":"not your tenant"}}`: "not your tenant",
		`<html>`:            "",
		`{"decision":true}`: "",
	} {
		_, err := client.New(serve(t, answers(403, "application/json", body)), client.Config{}).Evaluate(t.Context(), request)
		var status *client.StatusError
		if !errors.As(err, &status) {
			t.Fatalf("%s: %v is no StatusError", body, err)
		}
		if diff := cmp.Diff(&client.StatusError{Status: 403, Message: want}, status); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

func TestProperties(t *testing.T) {
	type device struct {
		Managed bool `json:"managed"`
	}
	for _, tt := range []struct {
		value any
		want  string
	}{
		{nil, ""},
		{map[string]any(nil), "{}"},
		{(*device)(nil), ""},
		{device{Managed: true}, `{"managed":true}`},
		{map[string]any{"b": int64(1) << 60, "a": []string{"x"}}, `{"a":["x"],"b":1152921504606846976}`},
	} {
		got, err := client.Properties(tt.value)
		if err != nil || string(got) != tt.want {
			t.Errorf("Properties(%#v) = %s, %v; want %s", tt.value, got, err, tt.want)
		}
	}
	for _, value := range []any{"text", 1, []string{"a"}, func() {}, map[string]any{"f": func() {}}} {
		if got, err := client.Properties(value); err == nil {
			t.Errorf("Properties(%T) = %s", value, got)
		}
	}
}
