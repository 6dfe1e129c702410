package pdp_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/pdp/webhook"
)

const secret = "0123456789abcdef0123456789abcdef"

// A PEP records callbacks.
type pep struct {
	*httptest.Server
	called chan string // bodies with a valid signature
}

func newPEP(t *testing.T) *pep {
	t.Helper()
	p := &pep{called: make(chan string, 10)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s.%s", r.Header.Get("Callback-Timestamp"), body)
		if r.Header.Get("Callback-Signature") != fmt.Sprintf("sha256=%x", mac.Sum(nil)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.called <- string(body)
	}))
	t.Cleanup(p.Close)
	return p
}

// An allowed PEP gets a signed callback with the status of its task and without the approval
// (AR-127 to AR-131 in conformance/testdata/rows.txt).
func TestCallback(t *testing.T) {
	p := newPEP(t)
	s := start(t, pdp.Config{Policies: policySet(t, "agent-tools"), Callbacks: []string{p.URL + "/done"}, CallbackSecret: []byte(secret)})
	submit := func(endpoint string) (int, string) {
		t.Helper()
		const asks = `"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"}`
		_, denied := post(t, http.DefaultClient, s.main+"/access/v1/evaluation", `{`+asks+`}`)
		response, task := post(t, http.DefaultClient, s.main+"/access/v1/requests",
			filled(t, []byte(`{`+asks+`,"callback":{"endpoint":"`+endpoint+`","state":"s-1","events":["approved"]},
				"denial":{"expires_at":"${d/context/access_request/expires_at}","binding_token":"${d/context/access_request/binding_token}"}}`), map[string]string{"d": denied}))
		return response.StatusCode, task
	}
	for _, endpoint := range []string{p.URL, p.URL + "/done/../other", p.URL + "/doneness", p.URL + "/done%2f..", "https://pep.example.com/done", "http://user@" + strings.TrimPrefix(p.URL, "http://") + "/done", "::"} {
		if status, body := submit(endpoint); status != http.StatusBadRequest || !strings.Contains(body, "callback endpoint is not allowed") {
			t.Errorf("%s: %d %s", endpoint, status, body)
		}
	}
	status, task := submit(p.URL + "/done/1")
	if status != http.StatusAccepted {
		t.Fatalf("%d %s", status, task)
	}
	id := filled(t, []byte("${t/task/id}"), map[string]string{"t": task})
	post(t, http.DefaultClient, s.admin+"/admin/v1/requests/"+id+"/decision", `{"decision":"approve","approver":{"type":"user","id":"carol"}}`)
	got := <-p.called
	if !strings.Contains(got, `"state":"s-1"`) || !strings.Contains(got, `"id":"`+id+`","status":"approved"`) || strings.Contains(got, "apr_") {
		t.Errorf("called back with %s", got)
	}
}

// The address counts when the connection is made (AR-128 in conformance/testdata/rows.txt). Here a
// name resolves to this host, which a URL with the name does not allow.
func TestCallbackRebinding(t *testing.T) {
	p := newPEP(t)
	port := p.URL[strings.LastIndex(p.URL, ":"):]
	for allowed, want := range map[string]bool{"http://localhost" + port: false, p.URL: true} {
		call, err := pdp.NewCall([]string{allowed}, []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), allowed+"/done", []byte(`{}`)); (err == nil) != want || !want && !errors.Is(err, webhook.ErrPrivate) {
			t.Errorf("%s: %v", allowed, err)
		}
	}
}

// An allowed address includes its port: a name that resolves to another port gets no callback.
func TestCallbackPort(t *testing.T) {
	p, other := newPEP(t), newPEP(t)
	call, err := pdp.NewCall([]string{p.URL}, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]bool{p.URL: true, other.URL: false} {
		if err := call(t.Context(), url, []byte(`{}`)); (err == nil) != want || !want && !errors.Is(err, webhook.ErrPrivate) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := pdp.NewCall([]string{"http://127.0.0.1", "https://[::1]/done"}, []byte(secret)); err != nil {
		t.Errorf("without a port: %v", err)
	}
}

// Callbacks are off by default and never unsigned (AR-131 in conformance/testdata/rows.txt).
func TestCallbackSettings(t *testing.T) {
	for _, test := range []struct{ url, secret, want string }{
		{"https://pep.example.com/done", "", "need a secret"},
		{"http://pep.example.com/done", secret, "write https://"},
		{"pep.example.com", secret, "write https://"},
		{"https://pep.example.com/done", secret, ""},
	} {
		_, err := pdp.NewCall([]string{test.url}, []byte(test.secret))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
