package console

import (
	"bytes"
	"context"
	"fmt"
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

// toAdmin returns a request to the admin API in the name of a person. A body has a media type.
func toAdmin(ctx context.Context, who Identity, method, path, media string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(withIdentity(ctx, who), method, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", media)
	}
	return r, nil
}

// ask sends a request to the admin API in the name of a person, and decodes its answer into out. A
// body is JSON; nil is none. An answer that is not a success is an [apiError].
func (c *Console) ask(ctx context.Context, who Identity, method, path string, body, out any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	return c.send(ctx, who, method, path, "application/json", text, out)
}

// send is ask with a body of any media type.
func (c *Console) send(ctx context.Context, who Identity, method, path, media string, body []byte, out any) error {
	r, err := toAdmin(ctx, who, method, path, media, body)
	if err != nil {
		return err
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
