package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/pdp"
)

// A reload is over when the server says so, however often that has to be asked,
// and is what the server says it was.
func TestReloadWaitsForTheEnd(t *testing.T) {
	const under, loaded = `{"id":7,"reading":"policies","seconds":5}`, `{"id":7,"loaded":true,"status":{"policies":3}}`
	for _, test := range []struct {
		name   string
		status []int // of the answers, in their order
		bodies []string
		fails  string // what the error says; "" for none
	}{
		{"at once", []int{200}, []string{loaded}, ""},
		{"later", []int{202, 202, 200}, []string{under, under, loaded}, ""},
		{"refused later", []int{202, 422}, []string{under, `{"id":7,"faults":[{"file":"a.cedar","line":2,"message":"does not parse"}]}`}, "a.cedar:2:0: does not parse"},
		{"a server that ends meanwhile", []int{202, 404}, []string{under, `{"error":{"status":404,"message":"there is no such reload"}}`}, "is not known"},
		{"not allowed", []int{403}, []string{`{"error":{"status":403,"message":"no"}}`}, "no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := len(asked)
				asked = append(asked, r.Method+" "+r.URL.RequestURI())
				w.WriteHeader(test.status[n])
				io.WriteString(w, test.bodies[n])
			}))
			defer server.Close()
			state := t.TempDir()
			if err := os.WriteFile(filepath.Join(state, pdp.AdminURLFile), []byte(server.URL+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := (&reloadCmd{State: state}).Run(t.Context())
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%v, want %q", err, test.fails)
			}
			if faults := (faults.List)(nil); test.status[len(test.status)-1] == 422 && !errors.As(err, &faults) {
				t.Errorf("%v is no fault of the store", err)
			}
			want := slices.Repeat([]string{"GET " + pdp.PathReload + "?id=7"}, len(test.status))
			want[0] = "POST " + pdp.PathReload
			if !slices.Equal(asked, want) {
				t.Errorf("asked %q, want %q", asked, want)
			}
		})
	}
}
