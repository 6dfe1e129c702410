package conformance_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/pdp/notify/notifytest"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// withMail are carol and dave, who approve, and mallory, whose address is none.
const withMail = `{"uid": {"type": "user", "id": "dave"}, "attrs": {"email": "dave@example.com"}, "parents": [{"type": "Role", "id": "tool_approver"}]},
  {"uid": {"type": "user", "id": "mallory"}, "attrs": {"email": "mallory@example.com\r\nBcc: eve@example.com"}, "parents": [{"type": "Role", "id": "tool_approver"}]},
  {"uid": {"type": "user", "id": "carol"}, "attrs": {"email": "carol@example.com", `

// notifyingStore returns agent-tools, whose approvers have addresses. With alice among the approvers, her
// own request is not for her. ways are those of the template.
func notifyingStore(t *testing.T, ways string) string {
	t.Helper()
	dir := unpack(t, "agent-tools")
	edit := func(file, old, new string) {
		t.Helper()
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s has no %s: %v", file, old, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit("entities.json", `{"uid": {"type": "user", "id": "carol"}, "attrs": {`, withMail)
	edit("entities.json", `{"uid": {"type": "user", "id": "alice"}, "attrs": {"department_id": "dept-eng"}, "parents": [`,
		`{"uid": {"type": "user", "id": "alice"}, "attrs": {"department_id": "dept-eng", "email": "alice@example.com"}, "parents": [{"type": "Role", "id": "tool_approver"}, `)
	edit("config.yaml", "    escalation: 20m\n", "    escalation: 20m\n    notify: "+ways+"\n")
	return dir
}

// notifyingConfig returns the file of a configuration that notifies by a mail server, and by lines more.
func notifyingConfig(t *testing.T, mail *notifytest.MailServer, more string) string {
	t.Helper()
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	file := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("console:\n  listen: 127.0.0.1:0\n  notify:\n    mail:\n      - {name: mail, host: %q, from: Policies <policies@example.com>, ca_file: %q, username: service, password_file: %q}\n%s",
		mail.Address, mail.CAFile, password, more)
	for path, content := range map[string]string{password: notifytest.Password, file: text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// pushes is a call of alice that needs approval.
const pushes = `"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.push_code"},"context":{"arguments":{"branch":"top-secret"}}`

// submitPush submits an access request for a push, and returns its task.
func submitPush(t *testing.T, main string) string {
	t.Helper()
	var denied authzen.Decision
	if _, err := postJSON(t.Context(), main+authzen.PathEvaluation, "{"+pushes+"}", &denied); err != nil || denied.Context == nil || denied.Context.AccessRequest == nil {
		t.Fatalf("no offer: %v", err)
	}
	offer := denied.Context.AccessRequest
	var task authzen.TaskResponse
	status, err := postJSON(t.Context(), main+authzen.PathRequests,
		fmt.Sprintf(`{%s,"denial":{"expires_at":%q,"binding_token":%q}}`, pushes, offer.ExpiresAt.Format(time.RFC3339), offer.BindingToken), &task)
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("submit: %d %v", status, err)
	}
	return task.Task.ID
}

// showRequest returns a request as approvers see it.
func showRequest(t *testing.T, s *server, task string) string {
	t.Helper()
	response, err := http.Get(s.Admin + "/admin/v1/requests/" + task)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mailsTo counts the mails to a person that have a text.
func mailsTo(server *notifytest.MailServer, person, text string) (n int) {
	for _, m := range server.Messages() {
		if len(m.To) == 1 && m.To[0] == person && strings.Contains(unfolded(m.Text), text) {
			n++
		}
	}
	return n
}

// unfolded joins the lines that quoted-printable has broken.
func unfolded(text string) string { return strings.ReplaceAll(text, "=\r\n", "") }

// Those whom policies let decide are told by mail and in a channel, with a link to the console and
// without arguments; the requester, who may decide on others' requests, is not. They are told of the end.
func TestApproversAreNotified(t *testing.T) {
	mail := notifytest.ServeMail(t, "starttls")
	var mu sync.Mutex
	var chat []string
	slack := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		chat = append(chat, string(body))
	}))
	defer slack.Close()
	said := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(chat, "\n")
	}
	t.Setenv("TEAM_SLACK", slack.URL+"/services/secret-path")
	config := notifyingConfig(t, mail, "    slack:\n      - {name: ops, url: env:TEAM_SLACK}\n    private_hosts: [127.0.0.1]\n")
	s := serveDir(t, notifyingStore(t, "[mail, ops]"), "--config", config)
	task := submitPush(t, s.URL)
	for _, person := range []string{"carol", "dave"} {
		process.Eventually(t, person+" is told", func() bool { return mailsTo(mail, person+"@example.com", "/requests/"+task) == 1 })
	}
	process.Eventually(t, "the channel is told", func() bool { return strings.Contains(said(), "/requests/"+task) })
	var shown struct {
		Sheet string `json:"sheet"`
	}
	if err := json.Unmarshal([]byte(showRequest(t, s, task)), &shown); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{unfolded(mail.Messages()[0].Text), said()} {
		if digits := strings.TrimPrefix(shown.Sheet, "sha256:"); digits == "" || !strings.Contains(text, "Sheet: "+digits[:4]+" "+digits[4:8]) {
			t.Errorf("sheet %s is not in\n%s", shown.Sheet, text)
		}
		if strings.Contains(text, "top-secret") {
			t.Errorf("the message has an argument:\n%s", text)
		}
	}
	var decided map[string]any
	if status, err := postJSON(t.Context(), s.Admin+"/admin/v1/requests/"+task+"/decision", `{"decision":"deny","approver":{"type":"user","id":"carol"}}`, &decided); err != nil || status != http.StatusOK {
		t.Fatalf("decide: %d %v", status, err)
	}
	process.Eventually(t, "dave is told of the end", func() bool { return mailsTo(mail, "dave@example.com", "Subject: Denied:") == 1 })
	if mailsTo(mail, "carol@example.com", "Subject: Denied:") != 0 {
		t.Error("carol is told of her own vote")
	}
	for _, m := range mail.Messages() {
		if m.To[0] == "alice@example.com" || strings.Contains(m.Text, "eve@example.com") || len(m.To) != 1 {
			t.Errorf("told %v", m.To)
		}
	}
	submitPush(t, s.URL)
	process.Eventually(t, "carol is told again", func() bool { return mailsTo(mail, "carol@example.com", "Subject: Waits for approval") == 2 })
	if n := strings.Count(s.Log(), "an approver is not notified"); n != 1 {
		t.Errorf("the log has %d warnings of mallory's address, want 1", n)
	}
	if log := s.Log(); strings.Contains(log, "secret-path") || strings.Contains(log, notifytest.Password) {
		t.Errorf("the log has a secret:\n%s", log)
	}
}

// A notification that is due is not lost when the program is killed, neither before it is sent nor before
// its delivery is recorded. Without the file of requests it is lost, which shows that the test can tell.
func TestNotificationsSurviveKill(t *testing.T) {
	for _, lose := range []bool{false, true} {
		mail := notifytest.ServeMail(t, "starttls")
		var once sync.Once
		killed := make(chan struct{})
		var first *server
		ready := make(chan struct{})
		mail.Accepted = func(notifytest.Mail) error {
			<-ready
			once.Do(func() {
				if err := first.Process.Process.Kill(); err != nil {
					t.Error(err)
				}
				close(killed)
			})
			return nil
		}
		config, state, store := notifyingConfig(t, mail, ""), t.TempDir(), notifyingStore(t, "[mail]")
		first = serveToKillDir(t, store, state, "--config", config)
		task := submitPush(t, first.URL)
		close(ready)
		<-killed
		<-first.Done
		before := map[string]int{}
		for _, person := range []string{"carol", "dave"} {
			before[person] = mailsTo(mail, person+"@example.com", task)
		}
		if lose {
			if err := os.Remove(filepath.Join(state, "approvals.db")); err != nil {
				t.Fatal(err)
			}
		}
		second := serveToKillDir(t, store, state, "--config", config)
		later := submitPush(t, second.URL)
		for _, person := range []string{"carol", "dave"} {
			process.Eventually(t, person+" is told of the later request", func() bool { return mailsTo(mail, person+"@example.com", later) > 0 })
			again := mailsTo(mail, person+"@example.com", task) - before[person]
			if lost := again == 0; lost != lose {
				t.Errorf("%s was sent %d messages before the kill and %d after it, with the file of requests: %t", person, before[person], again, !lose)
			}
		}
	}
}

// A fault of the notifications ends the start, with its place in the configuration or in the policy store.
func TestFaultsOfNotificationsHaveTheirPlace(t *testing.T) {
	mail := notifytest.ServeMail(t, "starttls")
	good := notifyingConfig(t, mail, "")
	clean := read(t, good)
	for name, test := range map[string]struct{ config, want string }{
		"no file":       {strings.Replace(clean, "password_file: \"", "password_file: \"/nowhere", 1), "console.notify.mail.0.password_file: open /nowhere"},
		"remote, clear": {strings.Replace(clean, mail.Address+`"`, `mail.example.com", tls: none`, 1), "console.notify.mail.0.tls: none is for a server on this host"},
		"unknown key":   {strings.Replace(clean, "from:", "sender:", 1), `config.yaml:5:`},
		"no console":    {strings.Replace(clean, "127.0.0.1:0", `""`, 1), "config.yaml:3:3: console.notify: needs the console"},
		"literal URL":   {clean + "    slack:\n      - {name: ops, url: https://hooks.slack.com/services/x}\n", "config.yaml:7:21: console.notify.slack.0.url: is a secret"},
		"unset":         {clean + "    slack:\n      - {name: ops, url: env:NOT_SET}\n", "config.yaml:7:21: console.notify.slack.0.url: the variable NOT_SET is not set"},
		"twice":         {clean + "    slack:\n      - {name: mail, url: env:HOME}\n", `there is another way "mail"`},
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(test.config), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := serveCommand(t, unpack(t, "agent-tools"), t.TempDir(), "--config", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.want) || !strings.Contains(string(out), "config.yaml:") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	s := serveToKillDir(t, notifyingStore(t, "[mial]"), t.TempDir(), "--config", good)
	process.Eventually(t, "the way of the template is refused", func() bool {
		return strings.Contains(strings.ReplaceAll(s.Log(), `\"`, `"`), `config.yaml:17:14: approval_templates.sensitive-write.notify.0: the service has no way "mial" (did you mean "mail"?)`)
	})
}

// notify-test sends a message in each way and says what happened.
func TestNotifyTest(t *testing.T) {
	mail := notifytest.ServeMail(t, "starttls")
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	config := notifyingConfig(t, mail, "    ntfy:\n      - {name: phone, url: \"http://127.0.0.1:1/topic\"}\n    private_hosts: [127.0.0.1]\n")
	out, err := exec.Command(path, "notify-test", "--config", config, "--to", "carol@example.com").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "mail: sent\nphone: failed: notify by phone: dial tcp 127.0.0.1:1") || mailsTo(mail, "carol@example.com", "Nothing waits for you") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
