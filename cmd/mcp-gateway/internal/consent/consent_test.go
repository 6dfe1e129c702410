package consent_test

import (
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/consent"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
)

// A harness is the pages of a gateway whose only caller is the one of this host, and a
// browser.
type harness struct {
	*testing.T
	*http.Client
	now    time.Time
	pages  *consent.Handler
	base   string
	tokens int // requests to the token endpoint
}

var carol = credential.Subject{Type: "user", ID: "carol"}

func newHarness(t *testing.T) *harness {
	h := &harness{T: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	key, err := seal.New(make([]byte, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	store, err := credential.OpenStore(filepath.Join(t.TempDir(), "credentials.db"), key)
	if err != nil {
		t.Fatal(err)
	}
	as := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.tokens++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"at","token_type":"Bearer"}`))
	}))
	t.Cleanup(as.Close)
	routes := http.NewServeMux()
	s := httptest.NewServer(routes)
	t.Cleanup(s.Close)
	h.base = s.URL
	cfg := credential.Config{Type: credential.TypeOAuth, AuthorizationURL: as.URL + "/authorize", TokenURL: as.URL + "/token", ClientID: "gateway"}
	now := func() time.Time { return h.now }
	grants := credential.NewGrants(cfg, credential.Surroundings{Now: now}, "notes", "http://notes.example", consent.Address(h.base, consent.PathCallback), store, slog.New(slog.DiscardHandler))
	h.pages = consent.New(consent.Config{
		Base: h.base, Grants: map[string]*credential.Grants{"notes": grants}, Store: store, Seal: key, Now: now, Log: slog.New(slog.DiscardHandler),
		Local: func(who credential.Subject) bool { return who == carol },
	})
	h.pages.Register(routes, func(http.ResponseWriter, *http.Request) bool { return true })
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Client = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return h
}

// ticket returns the page of a new ticket.
func (h *harness) ticket() string {
	h.Helper()
	link, _, err := h.pages.Ticket("notes", carol)
	if err != nil {
		h.Fatal(err)
	}
	return link
}

// begin confirms the page of a ticket, and returns the status and the authorization
// request.
func (h *harness) begin(link string) (int, url.Values) {
	h.Helper()
	u, err := url.Parse(link)
	if err != nil {
		h.Fatal(err)
	}
	response, err := h.PostForm(h.base+consent.PathStart, url.Values{"ticket": {u.Query().Get("ticket")}})
	if err != nil {
		h.Fatal(err)
	}
	response.Body.Close()
	to, err := url.Parse(response.Header.Get("Location"))
	if err != nil {
		h.Fatal(err)
	}
	return response.StatusCode, to.Query()
}

func (h *harness) get(path string, query url.Values) int {
	h.Helper()
	response, err := h.Get(h.base + path + "?" + query.Encode())
	if err != nil {
		h.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// A ticket, and the state that is made of it, end ten minutes after the call.
func TestTicketEnds(t *testing.T) {
	h := newHarness(t)
	link := h.ticket()
	h.now = h.now.Add(consent.Lifetime)
	status, request := h.begin(link)
	if status != http.StatusSeeOther || request.Get("code_challenge_method") != "S256" || request.Get("resource") != "http://notes.example" {
		t.Fatalf("the control: %d %v", status, request)
	}
	answer := url.Values{"code": {"c"}, "state": {request.Get("state")}}
	h.now = h.now.Add(time.Second)
	if status, _ := h.begin(link); status != http.StatusBadRequest {
		t.Errorf("a ticket that has ended begins: %d", status)
	}
	if status := h.get(consent.PathCallback, answer); status != http.StatusBadRequest || h.tokens != 0 {
		t.Errorf("a state that has ended is answered: %d, %d tokens", status, h.tokens)
	}
	h.now = h.now.Add(-time.Second)
	if status := h.get(consent.PathCallback, answer); status != http.StatusOK || h.tokens != 1 {
		t.Errorf("the control: %d, %d tokens", status, h.tokens)
	}
}

// The first answer counts, also one that grants nothing. Reading a page begins nothing.
func TestFirstAnswerCounts(t *testing.T) {
	h := newHarness(t)
	link := h.ticket()
	for range 2 {
		if response, err := h.Get(link); err != nil || response.StatusCode != http.StatusOK || len(response.Cookies()) > 0 {
			t.Fatalf("%v, %v", response, err)
		}
	}
	_, request := h.begin(link)
	if status := h.get(consent.PathCallback, url.Values{"error": {"access_denied"}, "state": {request.Get("state")}}); status != http.StatusForbidden {
		t.Errorf("a refusal: %d", status)
	}
	_, again := h.begin(link)
	for _, state := range []string{request.Get("state"), again.Get("state")} {
		if status := h.get(consent.PathCallback, url.Values{"code": {"c"}, "state": {state}}); status != http.StatusBadRequest || h.tokens != 0 {
			t.Errorf("a second answer: %d, %d tokens", status, h.tokens)
		}
	}
}

// Nobody but the caller of this host grants without a login, and no page of another
// site shows ours.
func TestPagesOfTheGateway(t *testing.T) {
	h := newHarness(t)
	for _, who := range []credential.Subject{{Type: "user", ID: "dave"}, {Type: "user", ID: "carol", Tenant: "acme"}, {Type: "user", ID: "carol", Issuer: "https://auth.example.com"}} {
		if _, _, err := h.pages.Ticket("notes", who); err == nil {
			t.Errorf("%v gets a ticket", who)
		}
	}
	response, err := h.Get(h.ticket())
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") || response.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", response.Header)
	}
}
