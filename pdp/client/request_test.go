package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Only a requestable denial is submitted, unchanged and with its proof (AR-9, AR-145, AR-146,
// AR-148, AR-150 in conformance/testdata/rows.txt).
func TestSubmission(t *testing.T) {
	expires := time.Date(2026, 4, 30, 20, 25, 0, 0, time.UTC)
	denied := &authzen.Decision{Context: &authzen.DecisionContext{
		EvaluationID: "e-1", Reason: "approval_required",
		AccessRequest: &authzen.AccessRequest{Template: "sre", ExpiresAt: expires, BindingToken: "a.b.c"},
	}}
	got, err := client.Submission(request, denied)
	if err != nil || *got.Denial != (authzen.Denial{EvaluationID: "e-1", ExpiresAt: "2026-04-30T20:25:00Z", BindingToken: "a.b.c", Reason: "approval_required", Template: "sre"}) ||
		got.Resource.ID != "record-1" || got.Action.Name != "read" || got.Subject.ID != "alice" || got.RequestedAccess != nil {
		t.Errorf("%+v, %v", got, err)
	}
	permitted := *denied
	permitted.Decision = true
	for name, d := range map[string]*authzen.Decision{
		"a permit": &permitted, "a bare denial": {}, "a denial with a reason": {Context: &authzen.DecisionContext{Reason: "approval_required"}},
	} {
		if _, err := client.Submission(request, d); !errors.Is(err, client.ErrNotRequestable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A task may already be decided, and an error is not a task (AR-56, AR-153 in
// conformance/testdata/rows.txt).
func TestSubmit(t *testing.T) {
	var key, path string
	for _, test := range []struct {
		status int
		kind   string
		body   string
		want   string
	}{
		{201, "application/json", `{"task":{"id":"t","status":"approved","status_endpoint":"https://x","expires_at":"2026-04-30T20:25:00Z"}}`, ""},
		{202, "application/json", `{"task":{"id":"t","status":"pending","status_endpoint":"https://x","expires_at":"2026-04-30T20:25:00Z"}}`, ""},
		{200, "application/json", `{"task":{"id":"t","status":"approved"}}`, "the PDP answered 200"},
		{410, "application/problem+json", `{"type":"urn:x","title":"Gone","status":410,"detail":"the denial has expired"}`, "the denial has expired"},
	} {
		url := serve(t, withoutMetadata(func(w http.ResponseWriter, r *http.Request) {
			key, path = r.Header.Get("Idempotency-Key"), r.URL.Path
			answers(test.status, test.kind, test.body)(w, r)
		}))
		task, err := client.New(url+"/tenants/acme", client.Config{}).Submit(t.Context(), "", "key-1", &authzen.Submission{})
		if test.want == "" && (err != nil || task.Task.ID != "t") || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%d: %+v, %v", test.status, task, err)
		}
		if key != "key-1" || path != "/tenants/acme/access/v1/requests" {
			t.Errorf("asked %s with the key %q", path, key)
		}
	}
}

// A submission goes to the endpoint of the denial if that is the PDP's, and never to another origin
// (AR-10, AR-147 in conformance/testdata/rows.txt).
func TestSubmitEndpoint(t *testing.T) {
	var asked []string
	url := serve(t, withoutMetadata(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		answers(202, "application/json", `{"task":{"id":"t","status":"pending","status_endpoint":"https://x","expires_at":"2026-04-30T20:25:00Z"}}`)(w, r)
	}))
	pdp := client.New(url, client.Config{Bearer: "key"})
	for endpoint, want := range map[string]error{
		"": nil, url + "/of/the/denial": nil,
		"https://evil.example.com/requests": client.ErrForeign, strings.Replace(url, "http://", "https://", 1): client.ErrForeign, "/requests": client.ErrForeign,
	} {
		if _, err := pdp.Submit(t.Context(), endpoint, "key-1", &authzen.Submission{}); !errors.Is(err, want) {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	slices.Sort(asked)
	if diff := cmp.Diff([]string{"/access/v1/requests", "/of/the/denial"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// withoutMetadata answers as a PDP that does not describe itself.
func withoutMetadata(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, authzen.PathMetadata) {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}
}

// An Access Request Service of another origin is trusted only if the PDP's metadata name it. It
// gets its own credential (AR-10, AR-147 in conformance/testdata/rows.txt).
func TestIndependentService(t *testing.T) {
	var asked []string
	var status string
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+r.Header.Get("X-Secret"))
		answers(map[string]int{"POST": 202, "GET": 200}[r.Method], "application/json", `{"task":{"id":"t","status":"pending","status_endpoint":"`+status+`","expires_at":"2099-04-30T20:25:00Z"}}`)(w, r)
	})
	status = service + "/tasks/t"
	third := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a third host is asked") })
	var pdp string
	described := 0
	pdp = serve(t, func(w http.ResponseWriter, r *http.Request) {
		described++
		says(`{"policy_decision_point":"`+pdp+`","access_evaluation_endpoint":"`+pdp+`/access/v1/evaluation","access_request_endpoint":"`+service+`/requests"}`)(w, r)
	})
	secret := func(value string) func(context.Context, http.Header) error {
		return func(_ context.Context, h http.Header) error {
			h.Set("X-Secret", value)
			return nil
		}
	}
	c := client.New(pdp, client.Config{Bearer: "key of the PDP", ServiceBearer: "key of the service", Header: secret("secret"), ServiceHeader: secret("+more")})
	for _, endpoint := range []string{"", service + "/of/the/denial"} {
		task, err := c.Submit(t.Context(), endpoint, "key-1", &authzen.Submission{})
		if err != nil {
			t.Fatalf("%q: %v", endpoint, err)
		}
		if _, err := c.Look(t.Context(), task); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	if _, err := c.Submit(t.Context(), third+"/requests", "key-1", &authzen.Submission{}); !errors.Is(err, client.ErrForeign) {
		t.Errorf("a third host: %v", err)
	}
	want := []string{
		"POST /requests Bearer key of the service+more", "GET /tasks/t Bearer key of the service+more",
		"POST /of/the/denial Bearer key of the service+more", "GET /tasks/t Bearer key of the service+more",
	}
	if diff := cmp.Diff(want, asked); diff != "" || described != 1 {
		t.Errorf("described %d times, asked (-want +got):\n%s", described, diff)
	}
}

// polled answers polls in order, without a network, and records their times.
type polled struct {
	answers []string // status, and after a space the Retry-After
	at      []time.Duration
	start   time.Time
}

func (p *polled) RoundTrip(r *http.Request) (*http.Response, error) {
	p.at = append(p.at, time.Since(p.start))
	status, after, _ := strings.Cut(p.answers[min(len(p.at), len(p.answers))-1], " ")
	result := ""
	if status == "approved" {
		result = `,"result":{"mode":"reevaluate","approval":{"id":"apr_1","approved_until":"2026-04-30T20:25:00Z"}}`
	}
	if status == "approved-somehow" {
		status, result = "approved", `,"result":{"mode":"trust-me","approval":{"id":"apr_1","approved_until":"2026-04-30T20:25:00Z"}}`
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if after != "" {
		header.Set("Retry-After", after)
	}
	body := fmt.Sprintf(`{"task":{"id":"t","status":%q,"status_endpoint":"https://pdp.example.com/t","expires_at":"2026-04-30T20:25:00Z"}%s}`, status, result)
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// A task is polled with growing intervals until it ends or expires. An unknown status is not an
// approval (AR-151, AR-152 in conformance/testdata/rows.txt).
func TestAwait(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []string
		expires time.Duration
		want    error
		polls   int
		last    time.Duration // time of the last poll, plus up to a quarter
	}{
		{"approved", []string{"pending", "pending", "approved"}, time.Hour, nil, 3, 7 * time.Second},
		{"as it says", []string{"pending 30", "approved"}, time.Hour, nil, 2, 31 * time.Second},
		{"a status that is not known", []string{"reviewing", "approved"}, time.Hour, nil, 2, 3 * time.Second},
		{"denied", []string{"denied"}, time.Hour, client.ErrNotApproved, 1, time.Second},
		{"partial", []string{"partial"}, time.Hour, client.ErrNotApproved, 1, time.Second},
		{"by a mode that is not known", []string{"approved-somehow"}, time.Hour, client.ErrNotApproved, 1, time.Second},
		{"never", []string{"pending"}, time.Minute, client.ErrNotApproved, 5, 31 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &polled{answers: test.answers, start: time.Now()}
				pdp := client.New("https://pdp.example.com/tenants/acme", client.Config{Transport: p})
				task := &authzen.TaskResponse{Task: authzen.Task{ID: "t", Status: authzen.TaskPending, StatusEndpoint: "https://pdp.example.com/t", ExpiresAt: time.Now().Add(test.expires)}}
				approval, err := pdp.Await(t.Context(), task)
				if !errors.Is(err, test.want) || (approval != nil) != (test.want == nil) {
					t.Errorf("%+v, %v", approval, err)
				}
				if len(p.at) != test.polls || p.at[len(p.at)-1] < test.last || p.at[len(p.at)-1] > test.last*5/4 {
					t.Errorf("asked after %v", p.at)
				}
			})
		})
	}
}

// Nothing is sent to another origin, and a wait ends with its context (AR-147 in
// conformance/testdata/rows.txt).
func TestAwaitBounds(t *testing.T) {
	pdp := client.New("https://pdp.example.com", client.Config{Bearer: "key"})
	for _, endpoint := range []string{"https://evil.example.com/t", "http://pdp.example.com/t", "https://pdp.example.com:8443/t", "https://x@pdp.example.com/t", "/t", "::"} {
		task := &authzen.TaskResponse{Task: authzen.Task{ID: "t", Status: authzen.TaskPending, StatusEndpoint: endpoint, ExpiresAt: time.Now().Add(time.Hour)}}
		if _, err := pdp.Await(t.Context(), task); !errors.Is(err, client.ErrForeign) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	task := &authzen.TaskResponse{Task: authzen.Task{ID: "t", Status: authzen.TaskPending, StatusEndpoint: "https://pdp.example.com/t", ExpiresAt: time.Now().Add(time.Hour)}}
	if _, err := pdp.Await(ctx, task); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// The approval is at context.approval, and the rest of the request is unchanged (AR-154 in
// conformance/testdata/rows.txt).
func TestApproved(t *testing.T) {
	until := time.Date(2026, 4, 30, 20, 25, 0, 0, time.UTC)
	asked := *request
	asked.Context = jsontext.Value(`{"ticket":"T-1","n":1.50}`)
	got, err := client.Approved(&asked, &authzen.Approval{ID: "apr_1", ApprovedUntil: until, State: "a.b.c"})
	if err != nil || string(got.Context) != `{"approval":{"id":"apr_1","approved_until":"2026-04-30T20:25:00Z","state":"a.b.c"},"n":1.50,"ticket":"T-1"}` {
		t.Errorf("%s, %v", got.Context, err)
	}
	if string(asked.Context) != `{"ticket":"T-1","n":1.50}` {
		t.Errorf("the request itself has changed: %s", asked.Context)
	}
}

// Look polls once, and only a pending task.
func TestLookPollsOnce(t *testing.T) {
	for _, test := range []struct {
		status authzen.TaskStatus // the known status
		answer string
		asked  int
		stands bool
		want   error
	}{
		{"pending", "pending", 1, false, nil},
		{"pending", "approved", 1, true, nil},
		{"pending", "approved-somehow", 1, false, client.ErrNotApproved},
		{"pending", "denied", 1, false, client.ErrNotApproved},
		{"pending", "odd", 1, false, nil},
		{"expired", "approved", 0, false, client.ErrNotApproved},
	} {
		p := &polled{answers: []string{test.answer}}
		task := &authzen.TaskResponse{Task: authzen.Task{ID: "t", Status: test.status, StatusEndpoint: "https://pdp.example.com/t"}}
		approval, err := client.New("https://pdp.example.com", client.Config{Transport: p}).Look(t.Context(), task)
		if (approval != nil) != test.stands || !errors.Is(err, test.want) || len(p.at) != test.asked {
			t.Errorf("%+v: %+v, %v, asked %d times", test, approval, err, len(p.at))
		}
	}
	foreign := &authzen.TaskResponse{Task: authzen.Task{ID: "t", Status: "pending", StatusEndpoint: "https://evil.example.com/t"}}
	if _, err := client.New("https://pdp.example.com", client.Config{}).Look(t.Context(), foreign); !errors.Is(err, client.ErrForeign) {
		t.Errorf("another origin: %v", err)
	}
}

// A task is cancelled only through its cancel link.
func TestCancel(t *testing.T) {
	var asked, body string
	url := serve(t, withoutMetadata(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		asked, body = r.Method+" "+r.URL.Path, string(text)
		answers(200, "application/json", `{"task":{"id":"t","status":"cancelled","status_endpoint":"https://x","expires_at":"2026-04-30T20:25:00Z"}}`)(w, r)
	}))
	pdp := client.New(url, client.Config{})
	task := &authzen.TaskResponse{}
	if err := pdp.Cancel(t.Context(), task, "withdrawn"); err != nil || asked != "" {
		t.Errorf("without a link: %v, asked %s", err, asked)
	}
	task.Task.Links = &authzen.TaskLinks{Cancel: "https://evil.example.com/cancel"}
	if err := pdp.Cancel(t.Context(), task, "withdrawn"); !errors.Is(err, client.ErrForeign) || asked != "" {
		t.Errorf("another origin: %v, asked %s", err, asked)
	}
	task.Task.Links.Cancel = url + "/t/cancel"
	if err := pdp.Cancel(t.Context(), task, "withdrawn"); err != nil || asked != "POST /t/cancel" || body != `{"reason":"withdrawn"}` {
		t.Errorf("%v, asked %s with %s", err, asked, body)
	}
}
