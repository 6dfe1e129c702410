package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/callers"
)

// signIn shows the ways to sign in.
func (v *visit) signIn() error {
	page := signInPage{Local: v.Links()}
	if p := v.party.Load(); p != nil {
		page.Provider, page.Start = p.name(), startPath(v.r.URL.Query().Get("next"))
	}
	return v.show(http.StatusOK, "sign-in", "Sign in", page)
}

type signInPage struct {
	Local    bool
	Provider string // name of the host of the provider; "" without one
	Start    string // path at which signing in there begins
}

// startPath returns the path at which signing in at the provider begins, to go on to next.
func startPath(next string) string {
	return pathStart + "?" + url.Values{"next": {ownPath(next)}}.Encode()
}

// askLocal shows the button that signs in by a link. The link itself, which programs open before
// people do, signs nobody in.
func (v *visit) askLocal() error {
	if reason := v.linksOff(); reason != "" {
		return v.refuseLink(reason)
	}
	text := v.r.URL.Query().Get("ticket")
	t, err := v.links.read(text)
	if err != nil {
		v.showError(http.StatusForbidden, "This link signs nobody in: "+ErrTicket.Error()+". Make another with policy-service console --as TYPE:ID.")
		return nil
	}
	return v.show(http.StatusOK, "sign-in-local", "Sign in", localPage{Who: t.Type + ":" + t.ID, Ticket: text})
}

// refuseLink says that the console refuses links, and why.
func (v *visit) refuseLink(reason string) error {
	v.showError(http.StatusForbidden, "Nobody is signed in: "+ErrNoLinks.Error()+", because "+reason+".")
	return nil
}

type localPage struct{ Who, Ticket string }

// signInLocal signs in by a link.
func (v *visit) signInLocal() error {
	if reason := v.linksOff(); reason != "" {
		return v.refuseLink(reason)
	}
	t, err := v.links.redeem(v.r.PostFormValue("ticket"))
	if err != nil {
		v.showError(http.StatusForbidden, "Nobody is signed in: "+ErrTicket.Error()+".")
		return nil
	}
	return v.start(Identity{
		Type: t.Type,
		Caller: callers.Caller{
			ID: t.ID, Names: []string{t.ID},
			Grant: callers.Grant{Scopes: []callers.Scope{scopeApprove, scopeAudit, scopeAdmin}},
		},
		Authn: &approval.Authn{Method: approval.MethodLink},
	}, nil, "/")
}

// start begins a session when that is recorded, and leads to a page.
func (v *visit) start(who Identity, claims callers.Claims, next string) error {
	id := v.sessions.start(who, claims, randomText())
	started, _ := v.sessions.find(id)
	if _, err := v.current(started); err != nil { // the settings have changed since, and did not end it
		v.sessions.end(id)
		return err
	}
	if err := v.config.Record(v.r.Context(), who, Act{Action: "sign_in", By: who.Principal(), From: v.address(), Authn: started.identity.Authn}); err != nil {
		v.sessions.end(id)
		return err
	}
	v.sessions.end(v.sessionID(v.r))
	v.setCookie(v.w, id)
	v.redirect(ownPath(next))
	return nil
}

// signOut ends the session.
func (v *visit) signOut() error {
	who := v.session.identity
	v.sessions.end(v.id)
	v.clearCookie(v.w)
	if err := v.config.Record(v.r.Context(), who, Act{Action: "sign_out", By: who.Principal(), Authn: who.Authn}); err != nil {
		v.session = nil
		v.config.Log.ErrorContext(v.r.Context(), "console: sign-out not recorded", "error", err)
		v.showError(http.StatusServiceUnavailable, "You are signed out. The log could not record it.")
		return nil
	}
	v.redirect("/sign-in")
	return nil
}

// ownPath returns next if it is a path of this console, and "/" otherwise.
func ownPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsFunc(next, isUnusual) || strings.HasPrefix(u.Path, "//") {
		return "/"
	}
	return next
}

// isUnusual reports whether browsers may read a character of a path as another.
func isUnusual(r rune) bool { return r == '\\' || r <= ' ' || r >= 0x7f }
