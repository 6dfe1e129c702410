package console

import (
	"errors"
	"net/http"

	"github.com/policy-service/policy-service/pdp/callers"
)

// Paths of signing in by OpenID Connect.
const (
	pathStart    = "/sign-in/start"
	pathCallback = "/sign-in/callback"
	pathStepUp   = "/sign-in/again"
)

// startSignIn leads to the provider.
func (v *visit) startSignIn() error {
	p := v.party.Load()
	if p == nil {
		return v.notFound()
	}
	state, one := v.beginSignIn(v.r.URL.Query().Get("next"))
	one.other = v.r.URL.Query().Has("other")
	to, err := p.address(v.r.Context(), &one, state)
	if err != nil {
		return v.failSignIn(&one, err)
	}
	v.redirect(to)
	return nil
}

// callback is where the provider leads people back to.
func (v *visit) callback() error {
	query := v.r.URL.Query()
	p := v.party.Load()
	one, err := v.signIns.end(query.Get("state"))
	if p == nil && err == nil {
		err = errLate
	}
	if err != nil {
		page := refusedPage{Title: "Nothing was done", Reason: err.Error(), Again: "/", Label: "Go to the first page"}
		return v.show(http.StatusForbidden, "sign-in-refused", page.Title, page)
	}
	mine, err := v.owns(&one)
	if err != nil {
		return v.refuseSignIn(&one, nil, err)
	}
	if reason := query.Get("error"); reason != "" {
		return v.refuseSignIn(&one, nil, errCancelled)
	}
	token, err := p.redeem(v.r.Context(), &one, query.Get("code"), query.Get("iss"))
	if err != nil {
		return v.refuseSignIn(&one, nil, err)
	}
	if mine != nil {
		v.session = mine
		err = v.confirm(p, &one, token)
	} else {
		err = v.enter(p, &one, token)
	}
	if signInRefused(err) {
		return v.refuseSignIn(&one, token, err)
	}
	return err
}

var (
	// errCancelled means that the provider signed nobody in.
	errCancelled = errors.New("the identity provider signed nobody in")
	// errBrowser means that another browser began.
	errBrowser = errors.New("another browser, or another session, began this")
)

// owns returns an error unless this browser began to sign in. For a pending verdict it returns the session.
func (v *visit) owns(one *signIn) (*session, error) {
	if one.pending == nil {
		cookie, err := v.r.Cookie(v.browserCookie())
		if err != nil || !one.is(cookie.Value) {
			return nil, errBrowser
		}
		return nil, nil
	}
	v.id = v.sessionID(v.r)
	found, ok := v.sessions.find(v.id)
	if !ok || !one.is(v.id) {
		return nil, errBrowser
	}
	return &found, nil
}

// enter signs a person in.
func (v *visit) enter(p *party, one *signIn, token *idToken) error {
	who, err := p.person(token.claims)
	if err != nil {
		return &refusal{err}
	}
	http.SetCookie(v.w, &http.Cookie{Name: v.browserCookie(), Path: "/", MaxAge: -1, Secure: v.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	return v.start(v.identity(who, token), token.claims, one.next)
}

// identity returns the identity of a person by an ID token.
func (v *visit) identity(who callers.Caller, token *idToken) Identity {
	authn := token.authn
	return Identity{Caller: who, Type: v.config.ApproverType, Authn: &authn, IDToken: token.raw}
}

// renew replaces the session by one with a new id.
func (v *visit) renew(who callers.Caller, token *idToken) {
	id := v.sessions.start(v.identity(who, token), token.claims, v.session.forms)
	v.sessions.end(v.id)
	v.id = id
	v.setCookie(v.w, id)
	found, _ := v.sessions.find(id)
	v.session = &found
}

// A refusal is an error because of the claims of a person.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// signInRefused reports whether an error means that signing in was refused.
func signInRefused(err error) bool {
	var claims *refusal
	return errors.As(err, &claims) || errors.Is(err, errStepUp) || errors.Is(err, errNoScope)
}

// refuseSignIn records that signing in was refused, and says so.
func (v *visit) refuseSignIn(one *signIn, token *idToken, err error) error {
	if errors.Is(err, errProvider) {
		return v.failSignIn(one, err)
	}
	act := Act{Action: "sign_in_refused", Reason: err.Error(), From: v.address()}
	if one.pending != nil {
		act.Action, act.By = "step_up_refused", one.pending.was.identity.Principal()
	}
	if token != nil {
		act.Authn = &token.authn
	}
	if err := v.config.Record(v.r.Context(), Identity{}, act); err != nil {
		return err
	}
	return v.failSignIn(one, err)
}

// failSignIn says why nothing was done, and leads to trying again.
func (v *visit) failSignIn(one *signIn, err error) error {
	title := "Nobody is signed in"
	page := refusedPage{Reason: err.Error(), Again: startPath(one.next), Label: "Sign in again"}
	if one.pending != nil {
		title, page.Again, page.Label = "Nothing was decided", one.next, "Open the request again"
	}
	status := http.StatusForbidden
	switch {
	case errors.Is(err, errProvider):
		v.config.Log.WarnContext(v.r.Context(), "console: the identity provider failed", "error", err)
		status, page.Reason = http.StatusServiceUnavailable, errProvider.Error()
	case errors.Is(err, errNoScope):
		title = "Your groups do not let you see this"
		page.Reason = "the settings of the console name no group of yours"
		if one.pending == nil {
			page.Other = page.Again + "&other=yes"
		}
	}
	page.Title = title
	return v.show(status, "sign-in-refused", title, page)
}

// A refusedPage says why nobody is signed in. Other is where another account signs in; "" unless that may help.
type refusedPage struct{ Title, Reason, Again, Label, Other string }

// current returns the session as the settings of now have it, or an error if they end it.
func (c *Console) current(s session) (session, error) {
	switch {
	case s.claims == nil && c.linksOff() != "":
		return s, errSettings
	case s.claims == nil:
		return s, nil
	}
	p := c.party.Load()
	if p == nil || p.Issuer != s.identity.Authn.Issuer {
		return s, errSettings
	}
	who, err := p.person(s.claims)
	s.identity.Caller = who
	return s, err
}

// errSettings means that the settings of now sign nobody in by what signed somebody in.
var errSettings = errors.New("the settings of signing in have changed")
