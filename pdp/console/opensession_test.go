package console_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An office is a console on this host, with an admin API whose answers are empty.
type office struct {
	*testing.T
	*console.Console
	clock clock
	state string
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{T: t, clock: clock{at: time.Now()}, state: t.TempDir()}
	var err error
	o.Console, err = console.New(console.Config{
		BaseURL: "http://127.0.0.1:8082", ApproverType: "user", Local: true, Now: o.clock.now, Log: slog.New(slog.DiscardHandler),
		Admin:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Answers: func() int64 { return 0 },
		Record:  func(context.Context, console.Identity, console.Act) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	unpublish, err := o.Publish(o.state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unpublish)
	return o
}

// ticket returns the form of a link for carol.
func (o *office) ticket() string {
	o.Helper()
	link, err := console.Link(o.state, authzen.Subject{Type: "user", ID: "carol"}, o.clock.now())
	if err != nil {
		o.Fatal(err)
	}
	_, ticket, _ := strings.Cut(link, "?")
	return ticket
}

// redeem uses a ticket, and returns the session's cookie; nil if the ticket is refused.
func (o *office) redeem(ticket string) *http.Cookie {
	o.Helper()
	r := httptest.NewRequest(http.MethodPost, "/sign-in/local", strings.NewReader(ticket))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		return cookie
	}
	return nil
}

// get asks for a page, and reports whether the session of the cookie goes on.
func (o *office) get(path string, session *http.Cookie) bool {
	o.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.AddCookie(session)
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	to, _ := url.Parse(w.Header().Get("Location"))
	return w.Code != http.StatusSeeOther || !strings.HasPrefix(to.Path, "/sign-in")
}

// The stream of the page Live, to which the page connects again and again, does not prolong the session.
func TestStreamDoesNotProlongSessions(t *testing.T) {
	o := newOffice(t)
	streamed, read := o.redeem(o.ticket()), o.redeem(o.ticket())
	for range 5 {
		if !o.get("/live/stream", streamed) || !o.get("/live", read) {
			t.Fatal("a session ends too early")
		}
		o.clock.pass(3*time.Minute - time.Second)
	}
	o.clock.pass(5 * time.Second)
	if o.get("/live/stream", streamed) || o.get("/live", streamed) {
		t.Error("the session goes on though nobody uses it")
	}
	if !o.get("/live", read) {
		t.Error("a page does not prolong the session")
	}
}

// A provider in the settings ends the sessions and the links of before it for good: they do not come back when the
// provider goes. A change that still permits links ends nothing.
func TestProviderEndsSessionsByLink(t *testing.T) {
	o := newOffice(t)
	session, ticket := o.redeem(o.ticket()), o.ticket()
	renew := func(to *console.OIDC) {
		t.Helper()
		if err := o.Renew(to); err != nil {
			t.Fatal(err)
		}
	}
	renew(nil)
	if !o.get("/live", session) {
		t.Fatal("a change of nothing ends the session")
	}
	renew(&console.OIDC{Issuer: "https://id.example.com", ClientID: "console"})
	renew(nil)
	if o.get("/live", session) {
		t.Error("the session goes on")
	}
	if o.redeem(ticket) != nil {
		t.Error("the link signs in")
	}
	if o.redeem(o.ticket()) == nil {
		t.Error("a new link signs nobody in")
	}
}
