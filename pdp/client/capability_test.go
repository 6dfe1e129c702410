package client_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var submission = &authzen.CapabilitySubmission{CapabilityTerms: authzen.CapabilityTerms{Subject: authzen.Subject{Type: "agent", ID: "a"}, Tools: []string{"files:read"}, Duration: 60}}

func TestCapabilities(t *testing.T) {
	var sent []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Idempotency-Key")+r.Header.Get("Prefer")+" "+string(body))
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/access/v1/capabilities":
			answers(http.StatusAccepted, "application/json", `{"capability":{"id":"cap_1","status":"pending"},"task":{"id":"arq_1"}}`)(w, r)
		case r.URL.Query().Has("holder"):
			says(`{"capabilities":[{"id":"cap_1","status":"active"}]}`)(w, r)
		default:
			says(`{"capability":{"id":"cap_1","status":"active"}}`)(w, r)
		}
	})
	pdp := client.New(url, client.Config{})
	pending, err := pdp.RequestCapability(t.Context(), "k", submission)
	if err != nil || pending.Capability.Status != "pending" || pending.Task.ID != "arq_1" {
		t.Errorf("request: %+v %v", pending, err)
	}
	if shown, err := pdp.Capability(t.Context(), "cap_1", 3*time.Second); err != nil || shown.Capability.Status != "active" {
		t.Errorf("capability: %+v %v", shown, err)
	}
	if all, err := pdp.Capabilities(t.Context(), submission.Subject); err != nil || len(all) != 1 {
		t.Errorf("capabilities: %+v %v", all, err)
	}
	if _, err := pdp.RevokeCapability(t.Context(), "cap_1", "done"); err != nil {
		t.Error(err)
	}
	want := []string{
		`POST /access/v1/capabilities k {"subject":{"type":"agent","id":"a"},"tools":["files:read"],"duration":60}`,
		"GET /access/v1/capabilities/cap_1 wait=3 ",
		"GET /access/v1/capabilities?holder=agent%3Aa  ",
		`POST /access/v1/capabilities/cap_1/revoke  {"comment":"done"}`,
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
}

// What is no answer about the capability is an error.
func TestCapabilityAnswers(t *testing.T) {
	for _, body := range []string{`{}`, `{"capability":{}}`, `{"capability":{"id":"cap_1"}}`, `{"capability":{"status":"active"}}`, `{"capability":{"id":"cap_2","status":"active"}}`, `{"decision":true}`, `[]`} {
		pdp := client.New(serve(t, says(body)), client.Config{})
		if got, err := pdp.Capability(t.Context(), "cap_1", 0); err == nil {
			t.Errorf("%s: %+v", body, got)
		}
		if got, err := pdp.Capabilities(t.Context(), submission.Subject); err == nil {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

func TestIntrospect(t *testing.T) {
	for body, want := range map[string]bool{
		`{"active":true,"id":"cap_1","bound":"key","cnf":{"jkt":"x"}}`: true,
		`{"active":false}`: true,
		`{}`:               false, `{"active":true}`: false, `{"active":true,"id":"cap_2"}`: false, `{"active":false,"id":"cap_1"}`: false, `{"active":1}`: false, `[]`: false,
	} {
		var sent string
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			sent = r.Method + " " + r.URL.Path + " " + string(text)
			says(body)(w, r)
		})
		got, err := client.New(url, client.Config{}).Introspect(t.Context(), authzen.IntrospectionRequest{ID: "cap_1"})
		if (err == nil) != want || want && got.Active != (got.ID == "cap_1") {
			t.Errorf("%s: %+v %v", body, got, err)
		}
		if want := `POST /access/v1/capabilities/introspect {"id":"cap_1"}`; sent != want {
			t.Errorf("%s, want %s", sent, want)
		}
	}
}

func TestCapabilityDenied(t *testing.T) {
	problem, err := json.Marshal(authzen.Problem{Type: authzen.ProblemCapabilityDenied, Title: "Forbidden", Status: 403, Detail: "no"})
	if err != nil {
		t.Fatal(err)
	}
	for body, denied := range map[string]bool{string(problem): true, `{"type":"about:blank","status":403,"detail":"the key lacks the scope request"}`: false} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Decision-ID", "d-1")
			answers(http.StatusForbidden, "application/problem+json", body)(w, r)
		})
		_, err := client.New(url, client.Config{}).RequestCapability(t.Context(), "k", submission)
		var status *client.StatusError
		if !errors.As(err, &status) || status.DecisionID != "d-1" || errors.Is(err, client.ErrCapabilityDenied) != denied {
			t.Errorf("%s: %v", body, err)
		}
	}
}
