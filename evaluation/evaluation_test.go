package evaluation_test

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var update = flag.Bool("update", false, "write the golden files")

// now is when the decisions of these tests are made.
var now = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

var environment = snapshot.Environment{Time: now}

// archive reads a policy store in txtar form. What stands before the first
// file is policies.cedar.
func archive(text string) snapshot.Archive {
	parsed := txtar.Parse([]byte(text))
	a := snapshot.Archive{}
	if len(parsed.Comment) > 0 {
		a["policies.cedar"] = parsed.Comment
	}
	for _, file := range parsed.Files {
		a[file.Name] = file.Data
	}
	return a
}

// A snapshot is asked in the words of the rules it is tested for. Subjects and
// resources are written `type id {properties}`, actions `name {properties}`;
// a context may follow.
type compiledStore struct {
	*snapshot.Snapshot
	t testing.TB
}

// compile makes a snapshot of a policy store in txtar form.
func compile(t testing.TB, text string) compiledStore {
	t.Helper()
	s, err := snapshot.Compile(archive(text))
	if err != nil {
		t.Fatal(err)
	}
	return compiledStore{s, t}
}

func (s compiledStore) allows(subject, action, resource string, context ...string) {
	s.t.Helper()
	s.answers(true, question(subject, action, resource, context...))
}

func (s compiledStore) denies(subject, action, resource string, context ...string) {
	s.t.Helper()
	s.answers(false, question(subject, action, resource, context...))
}

func (s compiledStore) answers(want bool, body string) {
	s.t.Helper()
	if out := s.decide(body); out.Decision != want {
		s.t.Errorf("%s\nis answered %v, want %v; policies %q, errors %v", body, out.Decision, want, out.Policies, out.Errors)
	}
}

// refuses checks that the request cannot be read, and what is said of it.
func (s compiledStore) refuses(complaint, subject, action, resource string, context ...string) {
	s.t.Helper()
	body := question(subject, action, resource, context...)
	out, err := s.Decide(request(s.t, body), environment)
	var invalid *authzen.ValidationError
	switch {
	case err == nil:
		s.t.Errorf("%s\nis answered %v, want the error\n%s", body, out.Decision, complaint)
	case !errors.As(err, &invalid):
		s.t.Errorf("%s\nis answered with a %T, want a ValidationError", body, err)
	case err.Error() != complaint:
		s.t.Errorf("%s\nis answered with the error\n%s\nwant\n%s", body, err, complaint)
	}
}

// explains checks that the request is denied before any policy is asked, and
// how the log explains it.
func (s compiledStore) explains(why, subject, action, resource string, context ...string) {
	s.t.Helper()
	body := question(subject, action, resource, context...)
	out := s.decide(body)
	if out.Decision || len(out.Policies) > 0 || len(out.Errors) != 1 || out.Errors[0].Message != why {
		s.t.Errorf("%s\nis answered %v; policies %q, errors %v\nwant a denial that says %q", body, out.Decision, out.Policies, out.Errors, why)
	}
}

// decide answers the request in body.
func (s compiledStore) decide(body string) *snapshot.Outcome {
	s.t.Helper()
	out, err := s.Decide(request(s.t, body), environment)
	if err != nil {
		s.t.Fatalf("%s\n%v", body, err)
	}
	return out
}

// request reads a request as the service does.
func request(t testing.TB, body string) *authzen.EvaluationRequest {
	t.Helper()
	var req authzen.EvaluationRequest
	if err := authzen.Unmarshal([]byte(body), &req); err != nil {
		t.Fatalf("%s\n%v", body, err)
	}
	return &req
}

// question is the body of a request.
func question(subject, action, resource string, context ...string) string {
	name, properties, _ := strings.Cut(action, " ")
	return fmt.Sprintf(`{"subject":%s,"action":{"name":%q%s},"resource":%s%s}`,
		entity(subject), name, member("properties", properties), entity(resource), member("context", strings.Join(context, "")))
}

func entity(text string) string {
	parts := append(strings.SplitN(text, " ", 3), "")
	return fmt.Sprintf(`{"type":%q,"id":%q%s}`, parts[0], parts[1], member("properties", parts[2]))
}

func member(name, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf(`,%q:%s`, name, value)
}
