package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/gateway"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
)

// Run returns without an error once its context ends, and releases the state
// directory: a second gateway can use it.
func TestRun(t *testing.T) {
	asked := make(chan bool, 2)
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer decides.Close()
	cfg := gateway.NewConfig()
	cfg.Listen, cfg.Admin, cfg.State, cfg.PDP.URL = "127.0.0.1:0", "127.0.0.1:0", t.TempDir(), decides.URL
	cfg.Identity.Local = &identity.Process{Type: "user", ID: "alice"}
	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- gateway.Run(ctx, cfg) }()
		select {
		case <-asked: // it has been opened
		case err := <-ended:
			t.Fatal(err)
		}
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("Run does not return")
		}
	}
}
