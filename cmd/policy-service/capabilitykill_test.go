//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	killPolicies = `
@id("ask") @approval("owner") permit (principal is agent, action == Action::"capability.request", resource is tool);
@id("owner") permit (principal == user::"olga", action == Action::"approval.approve", resource is access_request);
`
	killTools = 24 // each tool needs an approval of its own, so the issue takes a while
)

// A service that is killed between the approval of a capability and its issue issues it after the
// next start. The control is that the kills hit that time.
func TestKilledServiceIssuesApprovedCapability(t *testing.T) {
	const kills = 4
	hits := 0
	for kill := range kills {
		dir := t.TempDir()
		id := killedWhileItIssues(t, dir, 1+kill*killTools/kills)
		if log := runExport(t, filepath.Join(dir, "state")); bytes.Contains(log, []byte(`"event":"use"`)) && !bytes.Contains(log, []byte(`"event":"issue"`)) {
			hits++
		}
		s := serveIn(t, dir)
		if got := s.completed(t, id); got.Status != "active" {
			t.Errorf("kill %d: the capability is %s: %s", kill, got.Status, got.Reason)
		}
		s.kill(t)
	}
	if t.Logf("%d of %d kills came between a use and the issue", hits, kills); hits == 0 {
		t.Error("control: no kill came between a use and the issue")
	}
}

// killedWhileItIssues kills a service when it has used some of the approvals of a capability, and
// returns the id of the capability.
func killedWhileItIssues(t *testing.T, dir string, uses int) string {
	t.Helper()
	for name, text := range map[string]string{"policies.cedar": killPolicies, "config.yaml": "approval_templates: {owner: {}}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serveIn(t, dir)
	var tools []string
	for n := range killTools {
		tools = append(tools, fmt.Sprintf("%q", fmt.Sprintf("files:tool-%d", n)))
	}
	var asked authzen.CapabilityResponse
	body := `{"subject":{"type":"agent","id":"a"},"duration":600,"tools":[` + strings.Join(tools, ",") + `]}`
	response, err := http.Post(s.main+authzen.PathCapabilities, "application/json", strings.NewReader(body))
	if err == nil {
		err = json.UnmarshalRead(response.Body, &asked)
	}
	if err != nil || asked.Task == nil {
		t.Fatalf("%+v %v", asked, err)
	}
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		approve := `{"decision":"approve","approver":{"type":"user","id":"olga"}}`
		response, err := http.Post(s.admin+pdp.PathRequests+"/"+asked.Task.ID+"/decision", "application/json", strings.NewReader(approve))
		if err == nil { // the kill may come before the answer
			response.Body.Close()
		}
	}()
	for strings.Count(s.get(t, s.admin+pdp.PathLogExport+"?kind=approval"), `"event":"use"`) < uses {
		continue
	}
	s.kill(t)
	<-decided
	return asked.Capability.ID
}

// A servedIn is a service in a process of its own.
type servedIn struct {
	server
	main, admin string
}

// serveIn serves the policies in dir, with its state below dir.
func serveIn(t *testing.T, dir string) *servedIn {
	t.Helper()
	s := &servedIn{server: server{ended: make(chan struct{})}}
	s.command = exec.Command("policy-service", "serve", "--policies", dir, "--state", filepath.Join(dir, "state"), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	stderr, err := s.command.StderrPipe()
	if err == nil {
		err = s.command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.command.Process.Kill() }) // it has ended, unless the test fails
	ready := make(chan []string, 1)
	go s.read(stderr, ready)
	select {
	case urls := <-ready:
		s.main, s.admin = urls[1], urls[2]
	case <-s.ended:
		t.Fatalf("serve has ended:\n%s", &s.stderr)
	}
	return s
}

// kill ends the service at once.
func (s *servedIn) kill(t *testing.T) {
	t.Helper()
	if err := s.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	_ = s.command.Wait() // it was killed
}

func (s *servedIn) get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", url, response.Status, err, text)
	}
	return string(text)
}

// completed returns a capability that is no longer pending.
func (s *servedIn) completed(t *testing.T, id string) authzen.Capability {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		var shown authzen.CapabilityResponse
		if err := json.Unmarshal([]byte(s.get(t, s.admin+pdp.PathCapabilities+"/"+id)), &shown); err != nil {
			t.Fatal(err)
		}
		if shown.Capability.Status != "pending" {
			return shown.Capability
		}
	}
	t.Fatalf("%s is pending", id)
	return authzen.Capability{}
}
