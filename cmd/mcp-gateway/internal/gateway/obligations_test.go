package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Both forms of a notification are posted as they are; one that is to nobody
// is not made (OB-33).
func TestNotificationForms(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
	}))
	t.Cleanup(server.Close)
	handlers := (&obligationsConfig{NotificationURL: server.URL}).handlers()
	for properties, want := range map[string]bool{
		`{"to":"owner","body":"b"}`: true, `{"to":["owner","ops"],"body":"b","decision_subject":"alice"}`: true, `{"to":["owner"],"body":"b","decision_subject":{"type":"user","id":"alice"}}`: true,
		`{"to":[],"body":"b"}`: false, `{"body":"b"}`: false, `{"to":7,"body":"b"}`: false, `{"to":["owner",7],"body":"b"}`: false,
	} {
		got = ""
		granted, err := handlers.Discharge(t.Context(), &authzen.Decision{Decision: true, Context: &authzen.DecisionContext{
			Obligations: []authzen.Obligation{{ID: "o1", Type: authzen.ObligationNotification, Properties: []byte(properties)}},
		}})
		if granted != want || (err == nil) != want || want != strings.Contains(got, properties) {
			t.Errorf("%s: granted %v, %v, posted %s", properties, granted, err, got)
		}
	}
}

// A notification that nobody confirms was not made, and without a URL there are
// none (OB-60, OB-61).
func TestNotification(t *testing.T) {
	var got string
	status := http.StatusNoContent
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	permit := &authzen.Decision{Decision: true, Context: &authzen.DecisionContext{
		Obligations: []authzen.Obligation{{ID: "o1", Type: authzen.ObligationNotification, Properties: []byte(`{"to":"owner","body":"called"}`)}},
	}}
	handlers := (&obligationsConfig{NotificationURL: server.URL}).handlers()
	if granted, err := handlers.Discharge(t.Context(), permit); !granted || got != `{"id":"o1","type":"notification","properties":{"to":"owner","body":"called"}}` {
		t.Errorf("granted %v, %v, notified %s", granted, err, got)
	}
	for _, status = range []int{500, 404, 302} {
		if granted, err := handlers.Discharge(t.Context(), permit); granted || err == nil {
			t.Errorf("%d: granted %v, %v", status, granted, err)
		}
	}
	server.Close()
	for _, c := range []obligationsConfig{{NotificationURL: server.URL}, {}} {
		if granted, err := c.handlers().Discharge(t.Context(), permit); granted || err == nil {
			t.Errorf("%+v: granted %v, %v", c, granted, err)
		}
	}
}
