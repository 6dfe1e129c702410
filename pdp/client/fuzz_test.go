package client_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/pdp/client"
)

// body is a PDP whose every answer it is.
type body []byte

func (b body) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(b)),
		Request:    r,
	}, nil
}

// Whatever the body, there is an answer or an error, and the answer is what
// the one member named decision says.
func FuzzEvaluate(f *testing.F) {
	for _, seed := range []string{
		`{"decision":true}`,
		`{"decision":false,"context":{"reason_user":{"en":"no"}}}`,
		`{"decision":true,"decision":false}`,
		`{"Decision":true}`,
		`{"decision":true,"context":{"obligations":[{"id":"1","type":"custom","properties":{}}]}}`,
		` {"decision" : true } `,
		`[true]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		got, err := client.New("https://pdp.example.com", client.Config{Transport: body(answer)}).Evaluate(t.Context(), request)
		if (got == nil) == (err == nil) {
			t.Fatalf("%+v and %v", got, err)
		}
		if err != nil {
			return
		}
		var members map[string]jsontext.Value
		if err := json.Unmarshal(answer, &members); err != nil {
			t.Fatal(err)
		}
		if said := string(members["decision"]); said != strconv.FormatBool(got.Decision) {
			t.Errorf("took %s for %v", said, got.Decision)
		}
	})
}
