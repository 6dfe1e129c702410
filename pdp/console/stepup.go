package console

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"
)

// clockLeeway is the tolerated difference between our clock and the provider's.
const clockLeeway = time.Minute

// A pendingVerdict is a verdict that waits until the person has signed in again for it.
type pendingVerdict struct {
	verdict
	salt string  // random part of the nonce
	was  session // of the person who sent it
}

// nonce returns the nonce that binds an ID token to a vote: the SHA-256 of these lines, each ended by a
// line feed, in base64url without padding. A text that people write is there as its SHA-256.
//
//	policy-service verdict 1
//	digest of the sheet
//	approve or delegate
//	indexes of the items, as in 0,2, or empty for all
//	end of the approval (RFC 3339), or empty
//	SHA-256 of the comment
//	SHA-256 of the JSON of arguments, capability and delegate, or empty without them
//	salt
func (d *pendingVerdict) nonce() (string, error) {
	l, err := d.lines()
	if err != nil {
		return "", err
	}
	lines := []string{"policy-service verdict 1", d.Vote.Sheet, d.Vote.Decision, l.items, l.until, digest(d.Vote.Comment), l.rest, d.salt, ""}
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// boundLines are the lines of a nonce that the entry of the vote does not have in the same form.
type boundLines struct{ items, until, rest string }

func (d *pendingVerdict) lines() (l boundLines, err error) {
	items := make([]string, len(d.Vote.Items))
	for n, item := range d.Vote.Items {
		items[n] = strconv.Itoa(item)
	}
	l.items = strings.Join(items, ",")
	if !d.Vote.Until.IsZero() {
		l.until = d.Vote.Until.UTC().Format(time.RFC3339Nano)
	}
	if d.Vote.Arguments != nil || d.Vote.Capability != nil || d.Vote.To != nil {
		text, err := json.Marshal([]any{d.Vote.Arguments, d.Vote.Capability, d.Vote.To}, json.Deterministic(true))
		if err != nil {
			return l, fmt.Errorf("bind the verdict: %w", err)
		}
		l.rest = digest(string(text))
	}
	return l, nil
}

// digest returns the SHA-256 of a text in hexadecimal.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// submit sends a verdict: at once or, if it may lead to an approval and the settings require that, when
// the person has signed in again for exactly this verdict.
func (v *visit) submit(d verdict) error {
	again, err := v.signsInAgain(&d)
	if err != nil {
		v.forms.release(d.Ticket)
		return v.refused(d, err)
	}
	if !again {
		return v.decide(d, v.session.identity)
	}
	one := pendingVerdict{verdict: d, salt: randomText()[:22], was: *v.session}
	nonce, err := one.nonce()
	if err != nil {
		return err
	}
	now := v.config.Now()
	state := v.signIns.begin(signIn{
		browser: sha256.Sum256([]byte(v.id)), nonce: nonce, verifier: oauth2.GenerateVerifier(),
		next: requestPath(d.Task, ""), begun: now, until: now.Add(stepUpTime), pending: &one,
	})
	v.redirect(pathStepUp + "?" + url.Values{"state": {state}}.Encode())
	return nil
}

// signsInAgain reports whether the person has to sign in again for a verdict.
func (v *visit) signsInAgain(d *verdict) (bool, error) {
	if d.Vote.Decision == "deny" || !v.canStepUp() {
		return false, nil
	}
	if p := v.party.Load(); p == nil || p.StepUp != StepUpTemplates {
		return true, nil
	}
	var r request
	err := v.ask(http.MethodGet, adminPrefix+requestPath(d.Task, ""), nil, &r)
	return err == nil && v.stepsUp(&r), err
}

// canStepUp reports whether the person could sign in again for a verdict: at the provider, which the settings let
// the console ask.
func (v *visit) canStepUp() bool {
	p := v.party.Load()
	return v.session.claims != nil && (p == nil || p.StepUp != StepUpNever)
}

// stepsUp reports whether the person has to sign in again to approve a request or to delegate.
func (v *visit) stepsUp(r *request) bool {
	p := v.party.Load()
	return v.canStepUp() && (p == nil || p.StepUp != StepUpTemplates || r.StepUp())
}

// askStepUp leads to the provider for a verdict. It is a page of its own, because a browser refuses to
// follow a form of this console to another origin.
func (v *visit) askStepUp() error {
	state := v.r.URL.Query().Get("state")
	one, ok := v.signIns.find(state)
	p := v.party.Load()
	if !ok || p == nil || one.pending == nil || !one.is(v.id) {
		v.showError(http.StatusForbidden, "This step has ended. Nothing was decided: open the request again.")
		return nil
	}
	to, err := p.address(v.r.Context(), &one, state)
	if err != nil {
		return v.failSignIn(&one, err)
	}
	v.w.Header().Set("Refresh", "0; url="+to)
	return v.show(http.StatusOK, "step-up", "Sign in again", stepUpPage{to, one.next})
}

type stepUpPage struct{ Provider, Request string }

// errStepUp means that an ID token does not confirm a verdict.
var errStepUp = errors.New("signing in again did not confirm the decision")

// confirms returns an error unless the person who approves has signed in again, for this.
func (p *party) confirms(one *signIn, token *idToken) error {
	was := one.pending.was
	before := was.identity.Authn
	same := !token.authn.Time.After(before.Time) && one.begun.Sub(was.started) >= time.Second
	switch {
	case token.authn.Subject != before.Subject || token.authn.Issuer != before.Issuer:
		return fmt.Errorf("%w: another person signed in", errStepUp)
	case token.authn.Time.Before(one.begun.Add(-clockLeeway)) || same:
		return fmt.Errorf("%w: the provider did not ask for it again", errStepUp)
	case token.authn.Time.After(p.now().Add(clockLeeway)):
		return fmt.Errorf("%w: the provider says that it will be in the future", errStepUp)
	case p.ACRValues != nil && !slices.Contains(p.ACRValues, token.authn.ACR):
		return fmt.Errorf("%w: it was with acr %q, and %s is required", errStepUp, token.authn.ACR, strings.Join(p.ACRValues, " or "))
	}
	return nil
}

// confirm makes the vote of a verdict, with a new session.
func (v *visit) confirm(p *party, one *signIn, token *idToken) error {
	if err := p.confirms(one, token); err != nil {
		return err
	}
	who, err := p.person(token.claims)
	if err != nil {
		return &refusal{err}
	}
	if who.ID != one.pending.was.identity.ID {
		return fmt.Errorf("%w: another person signed in", errStepUp)
	}
	v.renew(who, token)
	bound := *v.session.identity.Authn
	lines, err := one.pending.lines()
	if err != nil {
		return err
	}
	bound.Bound, bound.Nonce, bound.Salt = true, one.nonce, one.pending.salt
	bound.Items, bound.Until, bound.Rest = lines.items, lines.until, lines.rest
	by := v.session.identity
	by.Authn = &bound
	return v.decide(one.pending.verdict, by)
}
