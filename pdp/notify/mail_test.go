package notify_test

import (
	"io"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp/notify"
	"github.com/policy-service/policy-service/pdp/notify/notifytest"
)

// write writes a file for a test.
func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// notifier returns a notifier.
func notifier(t *testing.T, s notify.Settings) *notify.Notifier {
	t.Helper()
	n, err := notify.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// waits is a request that waits, as it is announced.
func waits() notify.Announcement {
	return notify.Announcement{
		Event: "submit", Task: "arq_1", Status: "pending", Tenant: "acme",
		Subject: notify.Entity{Type: "user", ID: "alice"}, Actors: []notify.Entity{{Type: "agent", ID: "agent-7"}},
		Action: "tool.invoke", Resource: notify.Entity{Type: "tool", ID: "github.push_code"},
		DecideBy: time.Date(2026, 11, 21, 22, 10, 0, 0, time.UTC), Sheet: "sha256:7f3a91c2b45e",
		Link: "https://console.example.com/requests/arq_1",
	}
}

func message(all ...notify.Announcement) *notify.Message {
	return &notify.Message{Announcements: all}
}

// A mail is sent over TLS with authentication to one person, and says who wants what, for whom, until
// when, and where to decide.
func TestMail(t *testing.T) {
	for _, kind := range []string{"starttls", "tls"} {
		server := notifytest.ServeMail(t, kind)
		n := notifier(t, notify.Settings{Mail: []notify.Mail{{
			Name: "mail", Host: server.Address, TLS: kind, CAFile: server.CAFile, From: "Policies <policy-service@example.com>", Username: "service", PasswordFile: write(t, notifytest.Password),
		}}})
		for range 2 {
			if err := n.Send(t.Context(), "mail", "carol@example.com", message(waits())); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
		}
		got := server.Messages()
		if len(got) != 2 || !got[0].TLS || got[0].User != "service" || len(got[0].To) != 1 || got[0].To[0] != "carol@example.com" {
			t.Fatalf("%s: %+v", kind, got)
		}
		first, text := parsed(t, got[0].Text)
		second, _ := parsed(t, got[1].Text)
		if id := first.Get("Message-ID"); id == "" || id != second.Get("Message-ID") || !strings.HasSuffix(id, "@example.com>") {
			t.Errorf("%s: a message that is sent again has the id %s, before %s", kind, second.Get("Message-ID"), id)
		}
		for name, want := range map[string]string{
			"Subject": "Waits for approval: tool.invoke on github.push_code", "To": "<carol@example.com>", "Auto-Submitted": "auto-generated", "Content-Type": "text/plain; charset=UTF-8",
		} {
			if first.Get(name) != want {
				t.Errorf("%s: %s: %q, want %q", kind, name, first.Get(name), want)
			}
		}
		for _, want := range []string{
			`agent::"agent-7" requests "tool.invoke" on tool::"github.push_code" for user::"alice".`, "Tenant: acme", "Decide until: 2026-11-21 22:10 UTC", "Sheet: 7f3a 91c2\r\n", "https://console.example.com/requests/arq_1",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", kind, want, text)
			}
		}
	}
}

// parsed returns the headers of a message, and its text.
func parsed(t *testing.T, text string) (mail.Header, string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatal(err)
	}
	return m.Header, string(body)
}

// No message and no password crosses the network in clear, or to a server with another certificate.
func TestMailNeedsTLS(t *testing.T) {
	open, other := notifytest.ServeMail(t, "none"), notifytest.ServeMail(t, "starttls")
	_, wrongCA := notifytest.Certificate(t)
	secret := write(t, notifytest.Password)
	for name, test := range map[string]struct {
		server *notifytest.MailServer
		way    notify.Mail
		want   string
	}{
		"no STARTTLS":        {open, notify.Mail{CAFile: open.CAFile, Username: "service", PasswordFile: secret}, "console.notify.mail.tls"},
		"system's authority": {other, notify.Mail{}, "console.notify.mail.ca_file"},
		"wrong password":     {other, notify.Mail{CAFile: other.CAFile, Username: "service", PasswordFile: write(t, "guess")}, "auth"},
		"TLS expected":       {open, notify.Mail{CAFile: wrongCA, TLS: "tls"}, "TLS"},
	} {
		test.way.Name, test.way.Host, test.way.From = "mail", test.server.Address, "policy-service@example.com"
		err := notifier(t, notify.Settings{Mail: []notify.Mail{test.way}}).Send(t.Context(), "mail", "carol@example.com", message(waits()))
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.want)) || strings.Contains(err.Error(), notifytest.Password) {
			t.Errorf("%s: %v", name, err)
		}
		if got := test.server.Messages(); len(got) > 0 {
			t.Errorf("%s: sent %+v", name, got)
		}
	}
	way := notify.Mail{Name: "mail", Host: open.Address, TLS: "none", From: "policy-service@example.com", Username: "service", PasswordFile: secret}
	if err := notifier(t, notify.Settings{Mail: []notify.Mail{way}}).Send(t.Context(), "mail", "carol@example.com", message(waits())); err != nil || len(open.Messages()) != 1 {
		t.Errorf("on this host: %v", err)
	}
}

// An address from an entity that is more than one address gets nothing.
func TestHostileAddresses(t *testing.T) {
	server := notifytest.ServeMail(t, "starttls")
	n := notifier(t, notify.Settings{Mail: []notify.Mail{{Name: "mail", Host: server.Address, CAFile: server.CAFile, From: "policy-service@example.com"}}})
	for _, to := range []string{
		"", "carol", "carol@example.com, mallory@example.com", "Carol <carol@example.com>", "carol@example.com\r\nBcc: mallory@example.com", "carol@example.com>\r\nRCPT TO:<mallory@example.com",
		"undisclosed-recipients:;", "<carol@example.com>", " carol@example.com",
	} {
		if err := n.Send(t.Context(), "mail", to, message(waits())); err == nil {
			t.Errorf("%q: sent", to)
		}
	}
	if got := server.Messages(); len(got) > 0 {
		t.Errorf("sent %+v", got)
	}
}

// A name that is not one word is in quotation marks in the subject of a mail.
func TestSubjectSetsNamesApart(t *testing.T) {
	server := notifytest.ServeMail(t, "starttls")
	n := notifier(t, notify.Settings{Mail: []notify.Mail{{Name: "mail", Host: server.Address, CAFile: server.CAFile, From: "policy-service@example.com"}}})
	a := waits()
	a.Action, a.Resource.ID = "look at nothing", `x" for nobody`
	if err := n.Send(t.Context(), "mail", "carol@example.com", message(a)); err != nil {
		t.Fatal(err)
	}
	header, _ := parsed(t, server.Messages()[0].Text)
	if got, want := header.Get("Subject"), `Waits for approval: "look at nothing" on "x\u{0022} for nobody"`; got != want {
		t.Errorf("the subject is %s, want %s", got, want)
	}
}
