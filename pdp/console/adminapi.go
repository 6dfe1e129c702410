package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// An apiError is an answer of the admin API that is not a success.
type apiError struct {
	Status  int
	Message string // empty with a status of 5xx, whose cause is in the program's log
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s", e.Status, e.Message) }

// ask sends a request to the admin API in the name of a person, and decodes its answer into out. A
// body is JSON; nil is none. An answer that is not a success is an [apiError].
func (c *Console) ask(ctx context.Context, who Identity, method, path string, body, out any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(withIdentity(ctx, who), method, path, content)
	if err != nil {
		return fmt.Errorf("ask %s: %w", path, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	var answer answer
	c.config.Admin.ServeHTTP(&answer, r)
	return answer.decode(out)
}

// An answer keeps an answer of the admin API.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = make(http.Header)
	}
	return a.header
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(text []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(text)
}

// SetReadDeadline and SetWriteDeadline do nothing: no network is behind the answer.
func (a *answer) SetReadDeadline(time.Time) error  { return nil }
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// decode reads the answer into out. Bytes take the text as it is.
func (a *answer) decode(out any) error {
	if a.status >= http.StatusBadRequest {
		var problem authzen.ErrorResponse
		_ = json.Unmarshal(a.body.Bytes(), &problem) // without a message there is the status
		return &apiError{a.status, problem.Error.Message}
	}
	switch out := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*out = a.body.Bytes()
		return nil
	}
	if err := json.Unmarshal(a.body.Bytes(), out); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}
