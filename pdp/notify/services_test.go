package notify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/pdp/notify"
	"github.com/policy-service/policy-service/pdp/notify/notifytest"
	"github.com/policy-service/policy-service/pdp/webhook"
)

// A posted is a request that a service got.
type posted struct {
	path   string
	header http.Header
	body   string
}

// service returns the URL of a server that answers with a status, and what it gets.
func service(t *testing.T, status int) (url string, got chan posted) {
	t.Helper()
	got = make(chan posted, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- posted{r.URL.Path, r.Header, string(body)}
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// ways are one of each kind of HTTP service, with URLs below url.
func ways(t *testing.T, url string) notify.Settings {
	t.Helper()
	at := func(path string) notify.Location { return notify.Location{URLFile: write(t, url+path)} }
	return notify.Settings{
		PrivateHosts: []string{"127.0.0.1"},
		Slack:        []notify.Channel{{Name: "slack", Location: at("/services/T0/B0/slack-secret")}},
		Mattermost:   []notify.Channel{{Name: "mattermost", Location: at("/hooks/mattermost-secret")}},
		Ntfy:         []notify.Topic{{Name: "ntfy", Location: at("/topic-secret"), TokenFile: write(t, "tk_secret")}},
		Webhook:      []notify.Webhook{{Name: "webhook", Location: at("/webhook-secret"), SecretFile: write(t, strings.Repeat("k", 32))}},
	}
}

// Each service gets the members that its documentation names, and no others.
func TestServices(t *testing.T) {
	url, got := service(t, http.StatusOK)
	n := notifier(t, ways(t, url))
	const lines = "`agent::\"agent-7\"` requests `\"tool.invoke\"` on `tool::\"github.push_code\"` for `user::\"alice\"`.\nTenant: `acme`\nDecide until: 2026-11-21 22:10 UTC\nSheet: 7f3a 91c2\n"
	for name, want := range map[string]struct{ path, body string }{
		"slack":      {"/services/T0/B0/slack-secret", encoded(t, map[string]any{"text": "*Waits for approval*\n" + lines + "<https://console.example.com/requests/arq_1>\n", "parse": "none", "mrkdwn": true, "unfurl_links": false, "unfurl_media": false})},
		"mattermost": {"/hooks/mattermost-secret", encoded(t, map[string]any{"text": "**Waits for approval**\n" + lines + "https://console.example.com/requests/arq_1\n"})},
		"ntfy": {"/", encoded(t, map[string]any{"topic": "topic-secret", "title": "Waits for approval: tool.invoke on github.push_code", "priority": 3, "click": "https://console.example.com/requests/arq_1",
			"message": strings.ReplaceAll(lines, "`", "") + "https://console.example.com/requests/arq_1\n"})},
	} {
		if err := n.Send(t.Context(), name, "", message(waits())); err != nil {
			t.Fatal(err)
		}
		is := <-got
		if is.path != want.path || encoded(t, decoded(t, is.body)) != want.body || is.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s\n%s\nwant\n%s", name, is.path, is.body, want.body)
		}
		if authorization := is.header.Get("Authorization"); (name == "ntfy") != (authorization == "Bearer tk_secret") {
			t.Errorf("%s: Authorization: %q", name, authorization)
		}
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A webhook gets the values unchanged, with the signature of callbacks, and the same id when the message
// is sent again.
func TestWebhookIsSigned(t *testing.T) {
	url, got := service(t, http.StatusOK)
	n := notifier(t, ways(t, url))
	hostile := waits()
	hostile.Resource.ID = "<!channel> \u202e"
	var ids []string
	for range 2 {
		if err := n.Send(t.Context(), "webhook", "", &notify.Message{Announcements: []notify.Announcement{hostile}, More: 3}); err != nil {
			t.Fatal(err)
		}
		is := <-got
		mac := hmac.New(sha256.New, []byte(strings.Repeat("k", 32)))
		fmt.Fprintf(mac, "%s.%s", is.header.Get(webhook.HeaderTimestamp), is.body)
		if want := fmt.Sprintf("sha256=%x", mac.Sum(nil)); is.header.Get(webhook.HeaderSignature) != want {
			t.Errorf("signature %s, want %s", is.header.Get(webhook.HeaderSignature), want)
		}
		var body notify.WebhookBody
		if err := json.Unmarshal([]byte(is.body), &body); err != nil {
			t.Fatal(err)
		}
		if len(body.Announcements) != 1 || body.Announcements[0].Resource.ID != hostile.Resource.ID || body.More != 3 {
			t.Errorf("body %s", is.body)
		}
		ids = append(ids, body.ID)
	}
	if ids[0] != ids[1] || ids[0] == "" {
		t.Errorf("ids %q", ids)
	}
}

// An error of a service does not tell its URL or its secrets, and a redirect is not followed.
func TestErrorsKeepSecrets(t *testing.T) {
	refused, _ := service(t, http.StatusForbidden)
	elsewhere, got := service(t, http.StatusOK)
	redirecting := httptest.NewServer(http.RedirectHandler(elsewhere, http.StatusTemporaryRedirect))
	defer redirecting.Close()
	for name, url := range map[string]string{"refused": refused, "redirected": redirecting.URL, "unreachable": "http://127.0.0.1:1", "no address": "https://nowhere.invalid"} {
		n := notifier(t, ways(t, url))
		for _, way := range n.Names() {
			err := n.Send(t.Context(), way, "", message(waits()))
			if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "http://") {
				t.Errorf("%s by %s: %v", name, way, err)
			}
		}
	}
	if len(got) > 0 {
		t.Errorf("%d redirects were followed", len(got))
	}
}

// A URL whose host has a private address is not called unless the operator names the host.
func TestPrivateHosts(t *testing.T) {
	url, got := service(t, http.StatusOK)
	settings := ways(t, url)
	settings.PrivateHosts = nil
	n := notifier(t, settings)
	for _, way := range n.Names() {
		err := n.Send(t.Context(), way, "", message(waits()))
		if err == nil {
			t.Errorf("%s was called", way)
		} else if !strings.Contains(err.Error(), "name the host of the URL in console.notify.private_hosts") {
			t.Errorf("%s: %v", way, err)
		}
	}
	if len(got) > 0 {
		t.Errorf("%d requests", len(got))
	}
}

// A URL of this host in the configuration itself names that host.
func TestThisHostInTheConfiguration(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost"} {
		url, got := service(t, http.StatusOK)
		url = strings.Replace(url, "127.0.0.1", host, 1)
		n := notifier(t, notify.Settings{
			Ntfy:    []notify.Topic{{Name: "ntfy", Location: notify.Location{URL: url + "/approvals"}}},
			Webhook: []notify.Webhook{{Name: "webhook", Location: notify.Location{URL: url + "/hook"}, SecretFile: write(t, strings.Repeat("k", 32))}},
		})
		for _, way := range n.Names() {
			if err := n.Send(t.Context(), way, "", message(waits())); err != nil {
				t.Error(err)
			}
		}
		if len(got) != 2 {
			t.Errorf("%s: %d requests", host, len(got))
		}
	}
}

// The message about the end says who decided.
func TestEndSaysWhoDecided(t *testing.T) {
	url, got := service(t, http.StatusOK)
	a := waits()
	a.Event, a.Status, a.DecidedBy = "end", "approved", []notify.Entity{{Type: "user", ID: "carol"}}
	n := notifier(t, ways(t, url))
	for _, way := range n.Names() {
		if err := n.Send(t.Context(), way, "", message(a)); err != nil {
			t.Fatal(err)
		}
		if body := (<-got).body; !strings.Contains(body, "carol") {
			t.Errorf("%s: %s", way, body)
		}
	}
}

// hostile are values that others write.
var hostile = []string{
	"x\r\nBcc: mallory@example.com", "x\nSubject: approved", "x\r\n.\r\nMAIL FROM:<a@b>", "=?utf-8?q?=0D=0ABcc:_m=40example.com?=",
	"<!channel>", "<!here|here>", "<@U123>", "<https://evil.example.com|approve>", "@channel", "hello @here", "@all", "(@everyone",
	"https://evil.example.com/approve", "HTTP://evil.example.com", "//evil.example.com", "www.evil.example.com", "evil.com", "evil.com/approve", "\u0440\u0444.\u0440\u0444", "mailto:m@evil.com", "tel:123",
	"[approve](https://evil.com)", "![x](https://evil.com/pixel)", "`code` and *bold*", "``` \nfence", "| a | b |", "# heading", "<b>bold</b>", "&lt;!channel&gt;",
	"\u202eevil", "a\u200bb", `\u{202E}`, strings.Repeat("long ", 100), "", "\x00\x1b[31m", "\xff\xfe",
}

// What others wrote cannot act in any message: it ends no header, mentions nobody, formats nothing and
// becomes no link.
func TestHostileNames(t *testing.T) {
	url, got := service(t, http.StatusOK)
	server := notifytest.ServeMail(t, "starttls")
	settings := ways(t, url)
	settings.Mail = []notify.Mail{{Name: "mail", Host: server.Address, CAFile: server.CAFile, From: "policy-service@example.com"}}
	n := notifier(t, settings)
	for _, value := range hostile {
		a := waits()
		a.Subject, a.Resource, a.Tenant, a.Action = notify.Entity{Type: "user", ID: value}, notify.Entity{Type: value, ID: value}, value, value
		a.Actors, a.Arguments = []notify.Entity{{ID: value}}, strings.ReplaceAll(value, "\n", " ")
		if err := n.Send(t.Context(), "mail", "carol@example.com", message(a)); err != nil {
			t.Fatal(err)
		}
		checkMail(t, value, server.Messages()[len(server.Messages())-1])
		for _, way := range []string{"slack", "mattermost", "ntfy"} {
			if err := n.Send(t.Context(), way, "", message(a)); err != nil {
				t.Fatal(err)
			}
			body := decoded(t, (<-got).body)
			if way == "ntfy" {
				checkInert(t, way, value, fmt.Sprint(body["title"]))
				checkInert(t, way, value, withoutOurs(fmt.Sprint(body["message"])))
				continue
			}
			checkMarkup(t, way, value, withoutOurs(fmt.Sprint(body["text"])))
		}
	}
}

var decoder = new(mime.WordDecoder)

// withoutOurs removes our own link.
func withoutOurs(text string) string {
	return strings.NewReplacer("<https://console.example.com/requests/arq_1>", "", "https://console.example.com/requests/arq_1", "").Replace(text)
}

// checkMail checks that a mail has one recipient, our headers alone, and no links but ours.
func checkMail(t *testing.T, value string, got notifytest.Mail) {
	t.Helper()
	header, text := parsed(t, got.Text)
	if len(got.To) != 1 || len(header) != 9 || len(header["To"]) != 1 || len(header["Subject"]) != 1 {
		t.Errorf("%q: to %q with %v", value, got.To, header)
	}
	subject, err := decoder.DecodeHeader(header.Get("Subject"))
	if err != nil || strings.ContainsAny(subject, "\r\n") {
		t.Errorf("%q: subject %q: %v", value, subject, err)
	}
	checkInert(t, "subject", value, subject)
	checkInert(t, "mail", value, withoutOurs(text))
}

// links are texts of which mail programs and chats make links or mentions.
var links = regexp.MustCompile(`(?i)(://|//[a-z]|www\.|mailto:|tel:|\.com\b|\.\x{0440}\x{0444}|(^|[^\pL\pN_.+-])@)`)

// checkInert checks a text without markup.
func checkInert(t *testing.T, where, value, text string) {
	t.Helper()
	if found := links.FindString(text); found != "" {
		t.Errorf("%s: %q has %q in\n%s", where, value, found, text)
	}
	for _, r := range text {
		if r == '\u202e' || r == '\u200b' || r < ' ' && r != '\n' && r != '\r' {
			t.Errorf("%s: %q: %U in\n%s", where, value, r, text)
		}
	}
	if lines := strings.Count(strings.TrimSpace(text), "\n"); lines > 5 {
		t.Errorf("%s: %q has %d lines:\n%s", where, value, lines+1, text)
	}
}

// spans are code spans on one line.
var spans = regexp.MustCompile("`[^`\n]+`")

// checkMarkup checks that everything that others wrote is in a code span.
func checkMarkup(t *testing.T, where, value, text string) {
	t.Helper()
	checkInert(t, where, value, text)
	if strings.ContainsAny(text, "<>&") {
		t.Errorf("%s: %q has markup in\n%s", where, value, text)
	}
	rest := spans.ReplaceAllString(text, "V")
	rest = strings.ReplaceAll(rest, "*", "")
	const want = "Waits for approval\nV requests V on V for V.\n"
	if !strings.HasPrefix(rest, want) || strings.Contains(rest, "`") || value != "" && len(value) > 3 && strings.Contains(rest, value) {
		t.Errorf("%s: %q leaves its code span:\n%s", where, value, text)
	}
}

// A digest says how many requests wait, and shows some.
func TestDigest(t *testing.T) {
	url, got := service(t, http.StatusOK)
	n := notifier(t, ways(t, url))
	second := waits()
	second.Event, second.Status = "end", "denied"
	m := message(waits(), second)
	m.More = 12
	if err := n.Send(t.Context(), "mattermost", "", m); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(decoded(t, (<-got).body)["text"])
	for _, want := range []string{"**14 messages about access requests**\n", "**Waits for approval**\n", "**Denied**\n", "\nand 12 more: see the console.\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
