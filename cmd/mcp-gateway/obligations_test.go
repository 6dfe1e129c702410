package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/policy-service/policy-service/schemas/authzen"
)

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
