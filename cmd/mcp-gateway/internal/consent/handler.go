package consent

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"html/template"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/obligations/plain"
)

//go:embed page.html
var files embed.FS

var page = template.Must(template.ParseFS(files, "page.html"))

// A view is what a page says: a question with a button if it has a ticket.
type view struct {
	Title, Text    string
	Server, Caller string
	Ticket         string
}

// Register adds the pages to routes. Admit reports whether a request may be answered,
// and answers it otherwise.
func (h *Handler) Register(routes *http.ServeMux, admit func(http.ResponseWriter, *http.Request) bool) {
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET " + PathStart: h.ask, "POST " + PathStart: h.begin, "GET " + PathLogin: h.login, "GET " + PathCallback: h.callback,
		"GET " + PathClient: h.client,
	} {
		routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			setHeaders(w.Header())
			if admit(w, r) {
				serve(w, r)
			}
		})
	}
}

// setHeaders keeps pages out of caches and frames. The address of a page is a secret,
// so that other sites must not see it as the referrer.
func setHeaders(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
}

// maxForm bounds the body of a request.
const maxForm = 16 << 10

func (h *Handler) show(w http.ResponseWriter, status int, v view) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = page.Execute(w, v)
}

// fail tells the person why they cannot go on. What others say is for the log alone.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, t *ticket, status int, text string, err error) {
	server, id := "", ""
	if t != nil {
		server, id = t.Server, t.ID
	}
	h.cfg.Log.WarnContext(r.Context(), "a person did not let the gateway act for them", "server", server, "login", id, "why", text, "error", err)
	h.show(w, status, view{Title: "This did not work", Text: text})
}

// ask says what is about to happen. It changes nothing, because programs open
// addresses, too.
func (h *Handler) ask(w http.ResponseWriter, r *http.Request) {
	sealed := r.URL.Query().Get("ticket")
	t, err := h.open(sealed)
	if err != nil {
		h.fail(w, r, nil, http.StatusBadRequest, errTicket.Error(), err)
		return
	}
	h.show(w, http.StatusOK, view{Title: "Log in at " + t.Server, Server: t.Server, Caller: plain.Text(t.name()), Ticket: sealed})
}

// begin binds the ticket to this browser and leads the person on.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	t, err := h.open(r.PostFormValue("ticket"))
	if err != nil {
		h.fail(w, r, nil, http.StatusBadRequest, errTicket.Error(), err)
		return
	}
	browser := h.setSecret(w, t)
	if h.cfg.Local(t.subject()) {
		h.authorize(w, r, t, browser)
		return
	}
	if h.cfg.Login == nil {
		h.fail(w, r, t, http.StatusForbidden, ErrNoPerson.Error(), nil)
		return
	}
	a, err := h.authorization(sealLogin, t, browser)
	if err != nil {
		h.fail(w, r, t, http.StatusInternalServerError, errUnavailable, err)
		return
	}
	h.lead(w, r, t, func(ctx context.Context) (string, error) { return h.cfg.Login.URL(ctx, a) })
}

// login takes the person who comes back from the issuer of callers.
func (h *Handler) login(w http.ResponseWriter, r *http.Request) {
	s, err := h.resume(sealLogin, r)
	if err != nil {
		h.fail(w, r, nil, http.StatusBadRequest, err.Error(), nil)
		return
	}
	if r.FormValue("error") != "" || h.cfg.Login == nil {
		h.fail(w, r, &s.Ticket, http.StatusForbidden, "you were not logged in", refusalOf(r))
		return
	}
	who, err := h.cfg.Login.Person(r.Context(), s.answer(r))
	switch {
	case err != nil:
		h.fail(w, r, &s.Ticket, http.StatusBadGateway, "the login could not be verified", err)
	case !s.Ticket.is(who):
		h.fail(w, r, &s.Ticket, http.StatusForbidden, "this address is for another person, who called the server: do not open addresses that others send you", errPerson)
	default:
		h.authorize(w, r, &s.Ticket, s.Browser)
	}
}

// authorize leads the person to the authorization server.
func (h *Handler) authorize(w http.ResponseWriter, r *http.Request, t *ticket, browser [sha256.Size]byte) {
	a, err := h.authorization(sealCallback, t, browser)
	if err != nil {
		h.fail(w, r, t, http.StatusInternalServerError, errUnavailable, err)
		return
	}
	h.lead(w, r, t, func(ctx context.Context) (string, error) { return h.cfg.Grants[t.Server].Begin(ctx, a) })
}

const errUnavailable = "the authorization server cannot be reached now: try again later"

var errPerson = errors.New("another person has logged in")

func (h *Handler) lead(w http.ResponseWriter, r *http.Request, t *ticket, address func(context.Context) (string, error)) {
	to, err := address(r.Context())
	if err != nil {
		h.fail(w, r, t, http.StatusBadGateway, errUnavailable, err)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// callback takes the person who comes back from the authorization server. An answer
// counts once, whatever it says.
func (h *Handler) callback(w http.ResponseWriter, r *http.Request) {
	s, err := h.resume(sealCallback, r)
	if err != nil {
		h.fail(w, r, nil, http.StatusBadRequest, err.Error(), nil)
		return
	}
	t := &s.Ticket
	first, err := h.cfg.Store.Answer(t.ID, t.Expires, h.cfg.Now())
	switch {
	case err != nil:
		h.fail(w, r, t, http.StatusInternalServerError, "the gateway cannot keep what you have granted", err)
		return
	case !first:
		h.fail(w, r, t, http.StatusBadRequest, "this login has been completed before", nil)
		return
	}
	h.removeSecret(w, t)
	if r.FormValue("error") != "" || r.FormValue("code") == "" {
		h.fail(w, r, t, http.StatusForbidden, "the authorization server has granted nothing", refusalOf(r))
		return
	}
	if err := h.cfg.Grants[t.Server].Complete(r.Context(), t.subject(), s.answer(r)); err != nil {
		h.fail(w, r, t, http.StatusBadGateway, "the gateway did not get what you have granted", err)
		return
	}
	h.cfg.Log.InfoContext(r.Context(), "a person lets the gateway act for them", "server", t.Server, "tenant", t.Tenant, "type", t.Type, "id", t.Caller, "login", t.ID)
	h.show(w, http.StatusOK, view{Title: "Done", Text: "You can close this page and go on in your client."})
}

// refusalOf returns the error in an answer, for the log.
func refusalOf(r *http.Request) error {
	return errors.New(plain.Cut(plain.Text(r.FormValue("error")+" "+r.FormValue("error_description")), 200))
}

// client describes the gateway to an authorization server at which it is not
// registered (OAuth Client ID Metadata Document, draft 00).
func (h *Handler) client(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.MarshalWrite(w, map[string]any{
		"client_id": Address(h.cfg.Base, PathClient), "client_name": "MCP gateway", "client_uri": h.cfg.Base, "redirect_uris": []string{Address(h.cfg.Base, PathCallback)},
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
	}, json.Deterministic(true)); err != nil {
		h.cfg.Log.WarnContext(r.Context(), "describe the gateway", "error", err)
	}
}
