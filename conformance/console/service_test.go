package console_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/policies"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A service is the program with a console, serving a copy of an embedded policy store.
type service struct {
	*process.Server
	test         testing.TB
	console      string // URL
	store, state string // directories
}

// consoleLine is the line of the program that has the URL of the console.
var consoleLine = regexp.MustCompile(`(?m)^console on (https?://\S+)`)

// serve starts the program on agent-tools.
func serve(t testing.TB, args ...string) *service {
	t.Helper()
	set, err := policies.Set("agent-tools")
	if err != nil {
		t.Fatal(err)
	}
	return serveStore(t, set, args...)
}

// serveStore starts the program on a copy of a policy store.
func serveStore(t testing.TB, set fs.FS, args ...string) *service {
	t.Helper()
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{test: t, store: t.TempDir(), state: t.TempDir()}
	if err := os.CopyFS(s.store, set); err != nil {
		t.Fatal(err)
	}
	s.Server = process.Launch(t, exec.Command(path, append([]string{
		"serve", "--policies", s.store, "--state", s.state, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--console.listen", "127.0.0.1:0",
	}, args...)...))
	process.Eventually(t, "the console listens", func() bool {
		found := consoleLine.FindStringSubmatch(s.Log())
		if found != nil {
			s.console = found[1]
		}
		return found != nil
	})
	return s
}

// command runs a command of the program on the state directory, and returns what it prints.
func (s *service) command(args ...string) string {
	s.test.Helper()
	path, err := process.Program()
	if err != nil {
		s.test.Fatal(err)
	}
	var faults strings.Builder
	command := exec.Command(path, append(args, "--state", s.state)...)
	command.Stderr = &faults
	out, err := command.Output()
	if err != nil {
		s.test.Fatalf("%q: %v: %s", args, err, &faults)
	}
	return strings.TrimSpace(string(out))
}

// link returns a link that signs a person in.
func (s *service) link(person string) string {
	s.test.Helper()
	return s.command("console", "--as", person)
}

// signIn returns the browser of a person who is signed in by a link.
func (s *service) signIn(t testing.TB, person string, l look) *browser {
	t.Helper()
	b := open(t, s.console, l)
	b.visit(s.link(person))
	b.click("Sign in")
	b.sees("Sign out")
	return b
}

// post posts JSON to a URL and decodes the answer.
func (s *service) post(url, body string, answer any) {
	s.test.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		s.test.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.test.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, response.Body); err != nil {
		s.test.Fatal(err)
	}
	if err := json.Unmarshal(text.Bytes(), answer); err != nil || response.StatusCode >= http.StatusBadRequest {
		s.test.Fatalf("%s: %s %s: %v", url, response.Status, text.String(), err)
	}
}

// get reads JSON from a URL.
func (s *service) get(url string, answer any) {
	s.test.Helper()
	response, err := http.Get(url)
	if err != nil {
		s.test.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		s.test.Fatalf("%s: %s: %v", url, response.Status, err)
	}
}

// push is a call that needs a person: the members of an evaluation request.
func push(subject, arguments string) string {
	return fmt.Sprintf(`"subject":{"type":"user","id":%q},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"},"context":{"purpose":"Fix issue 555","arguments":%s}`, subject, arguments)
}

// submit submits an access request for a call, and returns its task.
func (s *service) submit(call string) string {
	s.test.Helper()
	var denied authzen.Decision
	s.post(s.URL+authzen.PathEvaluation, "{"+call+"}", &denied)
	if denied.Context == nil || denied.Context.AccessRequest == nil {
		s.test.Fatalf("no access request is offered for %s", call)
	}
	offer := denied.Context.AccessRequest
	var task authzen.TaskResponse
	s.post(s.URL+authzen.PathRequests, fmt.Sprintf(`{%s,"denial":{"expires_at":%q,"binding_token":%q}}`, call, offer.ExpiresAt.Format(time.RFC3339), offer.BindingToken), &task)
	return task.Task.ID
}

// decide decides a request over the admin API.
func (s *service) decide(task, decision, by string) {
	s.test.Helper()
	var answer map[string]any
	s.post(s.Admin+"/admin/v1/requests/"+task+"/decision", fmt.Sprintf(`{"decision":%q,"comment":"seen","approver":{"type":"user","id":%q}}`, decision, by), &answer)
}
