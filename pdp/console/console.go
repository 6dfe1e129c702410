package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp/callers"
)

// Config joins the console to a service. All members are required but Now.
type Config struct {
	Settings
	BaseURL      string       // of the console, for browsers: scheme and host
	Admin        http.Handler // routes of the admin listener; requests to it carry an [Identity]
	ApproverType string       // entity type of the people who sign in
	Local        bool         // only this host reaches the console, so that people may sign in by a link from the command line
	Notifies     bool         // messages tell approvers about requests

	Answers   func() int64      // number of answers to PEPs so far
	Transport http.RoundTripper // for requests to the identity provider
	Now       func() time.Time  // nil means time.Now

	// Record appends an entry about a person's act to the decision log.
	Record func(ctx context.Context, by Identity, act Act) error
	Log    *slog.Logger
}

// An Act is something that a person did at the console and that the admin API does not record.
type Act struct {
	Action string `json:"action"`          // sign_in, sign_in_refused, step_up_refused, sign_out or export
	By     string `json:"by,omitzero"`     // the person, TYPE:ID; "" if unknown
	Reason string `json:"reason,omitzero"` // of a refusal
	From   string `json:"from,omitzero"`   // address of the browser
	Format string `json:"format,omitzero"` // of an export
	Query  string `json:"query,omitzero"`  // that selected the entries of an export, as in a URL

	Authn *approval.Authn `json:"authn,omitempty"`
}

// A Console serves the pages.
type Console struct {
	config   Config
	sessions sessions
	turns    *turns
	polls    *turns // of open pages that ask whether they are up to date: they take no turn of a page
	links    links
	forms    forms
	signIns  signIns
	party    atomic.Pointer[party] // nil without an identity provider
	assets   assets
	pages    pages
	secure   bool   // browsers reach the console by TLS
	port     string // of the base URL
	routes   routes
	handler  http.Handler
}

// New returns the console of a service.
func New(config Config) (*Console, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	base, err := url.Parse(config.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{
		config:   config,
		sessions: sessions{idle: cmp.Or(config.SessionIdle, defaultIdle), most: cmp.Or(config.SessionMost, defaultMost), now: config.Now, byID: make(map[[32]byte]*session)},
		links:    links{local: local{URL: config.BaseURL, Type: config.ApproverType, Key: newKey()}, now: config.Now, used: make(map[string]time.Time)},
		turns:    newTurns(runtime.GOMAXPROCS(0), config.Answers),
		polls:    newTurns(runtime.GOMAXPROCS(0), config.Answers),
		forms:    newForms(config.Now),
		signIns:  signIns{now: config.Now, byState: make(map[string]signIn)},
		secure:   base.Scheme == "https",
		port:     base.Port(),
	}
	if err := c.Renew(config.OIDC); err != nil {
		return nil, err
	}
	if c.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if c.pages, err = c.loadPages(); err != nil {
		return nil, err
	}
	c.addRoutes()
	c.handler = c.headers(c.refuseOthers(&c.routes))
	return c, nil
}

// Renew replaces the settings of signing in at a provider; nil is no provider. Sessions that the new
// settings would not start end, and so do links if the console refuses them now: later settings bring neither back.
func (c *Console) Renew(o *OIDC) error {
	if err := c.renewParty(o); err != nil {
		return err
	}
	c.sessions.sift(func(s session) bool {
		_, err := c.current(s)
		return !errors.Is(err, errSettings)
	})
	if err := c.links.publish(c.linksOff()); err != nil {
		c.config.Log.Warn("console: policy-service console has the settings of before", "error", err) // links follow those of now
	}
	return nil
}

func (c *Console) renewParty(o *OIDC) error {
	if o == nil {
		c.party.Store(nil)
		return nil
	}
	if before := c.party.Load(); before != nil && reflect.DeepEqual(before.OIDC, *o) {
		return nil
	}
	p, err := newParty(*o, c.config.BaseURL, c.config.Transport, c.config.Now)
	if err != nil {
		return err
	}
	c.party.Store(p)
	return nil
}

// Publish lets the command line make links for signing in or, if the console refuses them, say why. The
// function that it returns ends that.
func (c *Console) Publish(state string) (unpublish func(), err error) {
	return c.links.open(state, c.linksOff())
}

// Links reports whether people sign in by a link from the command line.
func (c *Console) Links() bool { return c.linksOff() == "" }

// linksOff returns why nobody signs in by a link, or "".
func (c *Console) linksOff() string {
	wanted, p := c.config.Links, c.party.Load()
	switch {
	case !c.config.Local:
		return "it does not listen on this host alone, or a proxy is before it"
	case wanted != nil && !*wanted:
		return "console.links is false"
	case wanted == nil && p != nil:
		return "people sign in at " + p.Issuer + " (console.oidc). For an emergency, set console.links: true and restart the service"
	}
	return ""
}

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// Scopes that a page may require.
const (
	scopeApprove = callers.ScopeApprove
	scopeAudit   = callers.ScopeAudit
	scopeAdmin   = callers.ScopeAdmin
)

// routes are handlers by pattern.
type routes struct {
	http.ServeMux
	patterns []string
}

// Handle adds a handler.
func (r *routes) Handle(pattern string, handler http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, handler)
}

// Routes returns the patterns of all routes, in the form of [http.ServeMux].
func (c *Console) Routes() []string { return c.routes.patterns }

// addRoutes adds all pages. A page with scopes requires one of them.
func (c *Console) addRoutes() {
	mux := &c.routes
	mux.Handle("GET /assets/{name}", http.HandlerFunc(c.serveAsset))
	mux.Handle("GET /sign-in", c.public((*visit).signIn))
	mux.Handle("GET "+pathLocal, c.public((*visit).askLocal))
	mux.Handle("POST "+pathLocal, c.public((*visit).signInLocal))
	mux.Handle("GET "+pathStart, c.public((*visit).startSignIn))
	mux.Handle("GET "+pathCallback, c.public((*visit).callback))
	mux.Handle("GET "+pathStepUp, c.page((*visit).askStepUp))
	mux.Handle("POST /sign-out", c.page((*visit).signOut))
	mux.Handle("GET /{$}", c.page((*visit).home))
	mux.Handle("GET /requests", c.page((*visit).requests, scopeApprove))
	mux.Handle("GET /requests/{task}", c.page((*visit).showRequest, scopeApprove))
	mux.Handle("POST /requests/{task}/decision", c.page((*visit).postDecision, scopeApprove))
	mux.Handle("POST /requests/{task}/reveal", c.page((*visit).revealValue, scopeApprove))
	mux.Handle("POST /approvals/{approval}/revoke", c.page((*visit).revoke, scopeApprove))
	mux.Handle("GET /decisions", c.page((*visit).decisions, scopeAudit))
	mux.Handle("POST /decisions/export", c.signedIn((*visit).export, scopeAudit))
	mux.Handle("GET /decisions/{id}", c.page((*visit).decision, scopeAudit))
	mux.Handle("GET /decisions/{id}/test", c.page((*visit).testOfDecision, scopeAudit))
	mux.Handle("GET /decisions/{id}/evidence", c.page((*visit).evidence, scopeAudit))
	mux.Handle("GET /decisions/{index}/proof", c.page((*visit).proof, scopeAudit))
	mux.Handle("GET /log/keys", c.page((*visit).keys, scopeAudit))
	mux.Handle("GET /tasks/{id}", c.page((*visit).task, scopeAudit))
	mux.Handle("GET /live", c.page((*visit).live, scopeAudit))
	mux.Handle(patternStream, c.signedIn((*visit).liveStream, scopeAudit))
	mux.Handle("GET /policies", c.page((*visit).policies, scopeAdmin))
	mux.Handle("GET /policies/compare", c.page((*visit).compare, scopeAdmin))
	mux.Handle("GET /policies/{revision}", c.page((*visit).showRevision, scopeAdmin))
	mux.Handle("GET /tests", c.page((*visit).tests, scopeAdmin))
	mux.Handle("GET /shadow", c.page((*visit).shadow, scopeAdmin))
	mux.Handle("GET /try", c.page((*visit).try, scopeAdmin))
	mux.Handle("POST /try", c.page((*visit).postTry, scopeAdmin))
	mux.Handle("GET /replays", c.page((*visit).replays, scopeAdmin))
	mux.Handle("POST /replays", c.page((*visit).postReplay, scopeAdmin))
	mux.Handle("GET /replays/{id}", c.page((*visit).showReplay, scopeAdmin))
	mux.Handle("POST /replays/{id}/cancel", c.page((*visit).cancelReplay, scopeAdmin))
	mux.Handle("/", c.page((*visit).notFound))
}

// queries are the parameters that pages have in their addresses, by route. Other pages have none.
var queries = map[string][]string{
	"GET " + pathStepUp:        {"state"},
	"GET /requests":            {"view", "tenant", "token"},
	"GET /decisions":           slices.Collect(maps.Keys(new(searchForm).fields())),
	"GET /decisions/{id}":      {"raw"},
	"GET /live":                {"tenant"},
	patternStream:              {"tenant"},
	"GET /policies":            {"until"},
	"GET /policies/compare":    {"from", "to"},
	"GET /policies/{revision}": {"q", "file", "from"},
	"GET /try":                 {"from", "tenant"},
}

// unknownName returns a parameter of an address that its page would ignore, or "". A search must not
// show more than was asked for because a name is misspelled.
func unknownName(r *http.Request) string {
	if r.Method != http.MethodGet || r.Pattern == "/" {
		return ""
	}
	asked, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return r.URL.RawQuery
	}
	for name := range asked {
		if !slices.Contains(queries[r.Pattern], name) {
			return name
		}
	}
	return ""
}

// headers adds the headers of every answer. Nothing of another origin is loaded, framed or sent to,
// and no script but our files runs.
func (c *Console) headers(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
		"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), clipboard-read=()")
		h.Set("Cache-Control", "no-store")
		if c.secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// refuseOthers refuses requests that change something unless the browser says that a page of this
// console sent them. A browser that says nothing is refused as well.
func (c *Console) refuseOthers(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		safe := r.Method == http.MethodGet || r.Method == http.MethodHead
		silent := r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
		if !safe && (silent || protection.Check(r) != nil) {
			v := &visit{Console: c, w: w, r: r}
			v.showError(http.StatusForbidden, "This request did not come from a page of this console. Nothing was done.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A visit is one request of a browser.
type visit struct {
	*Console
	w       http.ResponseWriter
	r       *http.Request
	id      string   // of the session
	polls   bool     // an open page asks whether it is up to date
	watch   string   // path at which the page asks that; "" for a page that does not
	tag     string   // entity tag of what the page shows
	session *session // nil before signing in
}

// public returns a page for whoever comes.
func (c *Console) public(show func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Console: c, w: w, r: r}
		v.fail(show(v))
	})
}

// page returns a page that is made when it is the person's turn. It is for the same people as signedIn.
func (c *Console) page(show func(*visit) error, scopes ...callers.Scope) http.Handler {
	return c.signedIn(func(v *visit) error { return v.inTurn(show) }, scopes...)
}

// signedIn returns a handler for people who are signed in and have one of the scopes, if any are named.
// Others are led to signing in, and come back afterwards if they wanted to read. Streams and downloads
// use it without a turn: the admin API limits them.
func (c *Console) signedIn(show func(*visit) error, scopes ...callers.Scope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Console: c, w: w, r: r, id: c.sessionID(r), polls: isPoll(r)}
		found, ok := v.findSession()
		now, err := c.current(found)
		switch {
		case v.polls && (!ok || err != nil):
			w.WriteHeader(http.StatusUnauthorized)
			return
		case !ok || errors.Is(err, errSettings):
			v.redirect(c.signInPath(r.Method, nextOf(r)))
			return
		case err != nil:
			c.sessions.end(v.id)
			v.showError(http.StatusForbidden, "Your groups do not let you see this.")
			return
		}
		v.session = &now
		if len(scopes) > 0 && !v.may(scopes...) {
			v.showError(http.StatusForbidden, "Your groups do not let you see this.")
			return
		}
		if name := unknownName(r); name != "" {
			v.showError(http.StatusBadRequest, "The address has a parameter that this page does not know: "+plain.Text(name)+".")
			return
		}
		v.fail(show(v))
	})
}

// signInPath returns where somebody signs in to go on to a path: at the provider, if there is one. After a
// form it is a page, because a browser does not follow a form of this console to another origin.
func (c *Console) signInPath(method, next string) string {
	if method == http.MethodGet && c.party.Load() != nil {
		return startPath(next)
	}
	return "/sign-in?" + url.Values{"next": {ownPath(next)}}.Encode()
}

// inTurn shows a page when it is the person's turn.
func (v *visit) inTurn(show func(*visit) error) error {
	turns := v.turns
	if v.polls {
		turns = v.Console.polls
	}
	leave, err := turns.enter(v.r.Context(), v.session.identity.ID)
	if err != nil {
		v.showError(http.StatusTooManyRequests, "You have asked for many pages at the same time. Nothing was done: wait a moment, and try again.")
		return nil
	}
	defer leave()
	return show(v)
}

// nextOf returns where somebody goes after signing in: to the page that was asked for. A form is not
// sent again: after one about a request comes the page of the request, and after others home.
func nextOf(r *http.Request) string {
	switch task := r.PathValue("task"); {
	case r.Method == http.MethodGet:
		return r.URL.RequestURI()
	case task != "":
		return requestPath(task, "")
	}
	return "/"
}

// may reports whether the person has one of the scopes.
func (v *visit) may(scopes ...callers.Scope) bool {
	for _, scope := range scopes {
		if v.session != nil && v.session.identity.May(scope) {
			return true
		}
	}
	return false
}

// ask asks the admin API in the name of the person.
func (v *visit) ask(method, path string, body, out any) error {
	return v.Console.ask(v.r.Context(), v.session.identity, method, path, body, out)
}

// redirect leads the browser to one of our pages, with GET.
func (v *visit) redirect(to string) { http.Redirect(v.w, v.r, to, http.StatusSeeOther) }

// fail shows the page for an error.
func (v *visit) fail(err error) {
	var problem *apiError
	switch {
	case err == nil:
	case errors.Is(err, errSettings):
		v.redirect(v.signInPath(v.r.Method, "/"))
	case errors.As(err, &problem) && problem.Status == http.StatusNotFound:
		v.fail(v.notFound())
	case errors.As(err, &problem) && problem.Status == http.StatusForbidden:
		v.showError(problem.Status, "You may not see or do this: "+problem.Message+".")
	case errors.As(err, &problem) && problem.Status < http.StatusInternalServerError:
		v.showError(problem.Status, problem.Message)
	default:
		v.config.Log.ErrorContext(v.r.Context(), "console", "path", v.r.URL.Path, "error", err)
		v.showError(http.StatusServiceUnavailable, "The service could not do this. If you pressed a button, look at the page again before you press it again.")
	}
}

func (v *visit) notFound() error {
	v.showError(http.StatusNotFound, "There is no such page, or it is of a tenant that is not yours.")
	return nil
}

// home leads to the page that the person needs first.
func (v *visit) home() error {
	switch {
	case v.may(scopeAdmin):
		return v.overview()
	case !v.may(scopeApprove) && v.may(scopeAudit):
		v.redirect("/decisions")
		return nil
	}
	v.redirect("/requests")
	return nil
}

// address returns the address of the browser.
func (v *visit) address() string {
	host, _, _ := net.SplitHostPort(v.r.RemoteAddr)
	return host
}
