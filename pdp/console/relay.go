package console

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// read asks the admin API, and returns the answer with its headers. The answer to a poll may be 304.
func (v *visit) read(path string) (*answer, error) {
	r, err := toAdmin(v.r.Context(), v.session.identity, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}
	if known := v.known(); known != "" {
		r.Header.Set(headerKnown, known)
	}
	a := new(answer)
	v.config.Admin.ServeHTTP(a, r)
	return a, a.decode(nil)
}

// tagged asks the admin API, decodes its answer into out, and returns the entity tag. A page that shows the answer is
// whole, so the answer is never 304.
func (v *visit) tagged(path string, out any) (tag string, err error) {
	r, err := toAdmin(v.r.Context(), v.session.identity, http.MethodGet, path, "", nil)
	if err != nil {
		return "", err
	}
	a := new(answer)
	v.config.Admin.ServeHTTP(a, r)
	return a.header.Get(headerTag), a.decode(out)
}

// relay passes an answer of the admin API on while it is made. The browser stores it, or reads it with a script.
func (v *visit) relay(path string) error {
	r, err := toAdmin(v.r.Context(), v.session.identity, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return v.pass(r)
}

func (v *visit) pass(r *http.Request) error {
	if last := v.r.Header.Get("Last-Event-ID"); last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	to := &passing{ResponseWriter: v.w}
	v.config.Admin.ServeHTTP(to, r)
	if to.failed == nil {
		return nil
	}
	return to.failed.decode(nil)
}

// A passing passes an answer on, but keeps one that is not a success: the person gets a page instead.
type passing struct {
	http.ResponseWriter
	failed *answer
}

func (p *passing) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		p.failed = &answer{status: status}
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *passing) Write(text []byte) (int, error) {
	if p.failed != nil {
		return p.failed.Write(text)
	}
	return p.ResponseWriter.Write(text)
}

// Unwrap lets the admin API flush the answer and set deadlines.
func (p *passing) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// sessionCheck is the interval at which a stream looks whether its session has ended.
const sessionCheck = 5 * time.Second

// stream relays a stream until the session ends. Watching does not prolong the session.
func (v *visit) stream(path string) error {
	ctx, end := context.WithCancel(v.r.Context())
	defer end()
	r, err := toAdmin(ctx, v.session.identity, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	go func() {
		look := time.NewTicker(sessionCheck)
		defer look.Stop()
		for ctx.Err() == nil && v.sessions.alive(v.id) {
			select {
			case <-ctx.Done():
			case <-look.C:
			}
		}
		end()
	}()
	return v.pass(r)
}

// adminAction returns what an entry of the kind admin is about.
func adminAction(request jsontext.Value) string {
	var act Act
	_ = json.Unmarshal(request, &act) // an entry of another form has no action
	return act.Action
}
