package pdp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/policy-service/policy-service/evaluation/policystore"
	"github.com/policy-service/policy-service/pdp"
)

// While the goroutine that reads the policy store is stuck, readiness says that a
// change is not in force, once it has not been for some seconds.
func TestReadinessWhileReadingIsStuck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.cedar")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("// before\n")
	store := policystore.New(filepath.Dir(file), policystore.Config{})
	state, err := store.Read()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stuck, released, ended := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		store.Watch(ctx, state, func(context.Context, *policystore.State) error {
			stuck <- true
			<-released
			return nil
		})
	}()
	defer func() { close(released); cancel(); <-ended }()
	write("// after\n")
	<-stuck

	var later atomic.Int64
	ready, err := pdp.Readiness(t.TempDir(), store, func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	says := func() string {
		w := httptest.NewRecorder()
		ready.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
		return w.Body.String()
	}
	later.Store(-int64(time.Minute))
	if text := says(); !strings.HasPrefix(text, "ok\n") || strings.Contains(text, "pending") {
		t.Errorf("at once it says\n%s", text)
	}
	later.Store(int64(time.Hour))
	if text := says(); !strings.HasPrefix(text, "stale\n") || !strings.Contains(text, "\npending 1h0m") || !strings.Contains(text, "s: a change of the policy store is neither in force nor refused\n") {
		t.Errorf("later it says\n%s", text)
	}
}
