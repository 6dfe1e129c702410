package credential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

// ErrNoGrant means that the person behind the caller has not let the gateway act for
// them at the server, or does so no more.
var ErrNoGrant = errors.New("the person behind the caller has to let the gateway act for them at the server")

// Grants are the tokens that people have let the gateway have at one server. It is
// safe for concurrent use.
//
// A token belongs to one person of one tenant, as the issuer of the caller's token
// names them. The tokens of a person are refreshed one at a time, because an
// authorization server revokes them all when a refresh token is used twice.
type Grants struct {
	codeClient
	name     string // of the server
	store    *Store
	log      *slog.Logger
	tokens   *cache
	requests singleflight.Group // by key of the person

	mu      sync.Mutex    // of what puts the token of a grant into the cache, and what replaces the grant
	granted chan struct{} // closed when a person grants
}

// NewGrants returns the grants at the server of that name and URL, for a valid Config.
// Redirect is the URL to which the authorization server leads people back.
func NewGrants(cfg Config, around Surroundings, name, server, redirect string, store *Store, log *slog.Logger) *Grants {
	if around.Now == nil {
		around.Now = time.Now
	}
	return &Grants{
		codeClient: newCodeClient(&cfg, &around, server, redirect), name: name, store: store, log: log,
		tokens: newCache(&around), granted: make(chan struct{}),
	}
}

// key returns the key of a person's grant or, with scopes, of a token with less.
func (g *Grants) key(who Subject, scopes []string) key {
	return keyOf(g.name, who.Tenant, who.Issuer, who.Type, who.ID, joined(scopes))
}

// A fetched is a token, and what it is for.
type fetched struct {
	key   key
	token string
}

// Token returns the person's token, with the scopes if there are any. The error is
// [ErrNoGrant] if the person has to be asked.
func (g *Grants) Token(ctx context.Context, who Subject, scopes []string) (string, error) {
	person, k := g.key(who, nil), g.key(who, scopes)
	for {
		if token, ok := g.tokens.get(k); ok {
			return token, nil
		}
		flight := g.requests.DoChan(string(person[:]), func() (any, error) {
			token, err := g.fetch(context.WithoutCancel(ctx), person, k, scopes)
			return fetched{k, token}, err
		})
		select {
		case result := <-flight:
			if got := result.Val.(fetched); got.key == k && !errors.Is(result.Err, errMoved) {
				return got.token, result.Err
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// fetch returns a token of a grant that is not in the cache, or that came there since
// the caller looked.
func (g *Grants) fetch(ctx context.Context, person, k key, scopes []string) (string, error) {
	if token, ok := g.tokens.get(k); ok {
		return token, nil
	}
	held, token, err := g.stored(person, k, scopes)
	switch {
	case err != nil || token != "":
		return token, err
	case held == nil || held.Client != g.id:
		return "", ErrNoGrant
	case !isNarrower(scopes, held.Scopes) || len(scopes) > 0 && held.Refresh == "":
		return "", ErrScopes
	case held.Refresh == "":
		return "", errors.Join(ErrNoGrant, g.store.save(person, held, nil))
	}
	return g.refresh(ctx, person, k, held, scopes)
}

// stored returns a grant, and its token if that is good and has no more than the
// scopes.
func (g *Grants) stored(person, k key, scopes []string) (held *grant, token string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held, err = g.store.load(person)
	if err != nil || held == nil || held.Client != g.id || !g.now().Before(held.Until) {
		return held, "", err
	}
	if len(scopes) > 0 && (len(held.Scopes) == 0 || !isNarrower(held.Scopes, scopes)) {
		return held, "", nil
	}
	g.tokens.keep(k, entry{held.Access, held.Until})
	return held, held.Access, nil
}

// refresh gets a token for a refresh token, and keeps the one that replaces it before
// anything is done with either.
func (g *Grants) refresh(ctx context.Context, person, k key, held *grant, scopes []string) (string, error) {
	as, err := g.servers.find(ctx)
	switch {
	case err != nil:
		return "", err
	case as.issuer != held.Issuer: // the tokens of one are not for another
		return "", ErrNoGrant
	}
	asked := g.now()
	issued, err := g.request(ctx, as.token, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {held.Refresh}, "resource": {held.Resource}}, scopes)
	if err != nil {
		return "", g.refused(person, held, err, scopes)
	}
	if err := checkIssued(issued, false); err != nil {
		return "", err
	}
	until := asked.Add(usable(issued))
	next := *held
	if next.Refresh = held.Refresh; issued.RefreshToken != "" {
		next.Refresh = issued.RefreshToken
	}
	if len(scopes) == 0 {
		next.Access, next.Until, next.Scopes = issued.AccessToken, until, either(scopesOf(issued), held.Scopes)
	}
	if err := g.store.save(person, held, &next); err != nil {
		return "", err
	}
	if err := checkNarrowed(issued, scopes); err != nil {
		return "", err
	}
	g.tokens.keep(k, entry{issued.AccessToken, until})
	return issued.AccessToken, nil
}

// refused returns why a token was not refreshed. A grant that has ended is removed.
func (g *Grants) refused(person key, held *grant, err error, scopes []string) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) {
		switch answer.ErrorCode {
		case "invalid_grant":
			return errors.Join(ErrNoGrant, g.store.save(person, held, nil))
		case "invalid_scope":
			if len(scopes) > 0 {
				return ErrScopes
			}
		}
	}
	return endpointError(err, held.Refresh)
}

// Drop takes a token that the server has refused. Its refresh token gets another; if
// that one is refused too, the grant is revoked, and the person has to be asked.
func (g *Grants) Drop(ctx context.Context, who Subject, scopes []string, token string, again bool) bool {
	person := g.key(who, nil)
	g.tokens.drop(g.key(who, scopes), token)
	if len(scopes) > 0 {
		return !again
	}
	held, err := g.store.load(person)
	if err == nil && held != nil && held.Access == token {
		if again {
			g.revoke(ctx, held)
			err = g.store.save(person, held, nil)
		} else {
			next := *held
			next.Access, next.Until = "", time.Time{}
			err = g.store.save(person, held, &next)
		}
	}
	if err != nil && !errors.Is(err, errMoved) {
		g.log.ErrorContext(ctx, "credentials", "server", g.name, "error", err)
		return false
	}
	return true
}

// revoke tells the authorization server that a grant is not used any more (RFC 7009).
func (g *Grants) revoke(ctx context.Context, held *grant) {
	as, err := g.servers.find(ctx)
	if err != nil || as.revocation == "" || as.issuer != held.Issuer {
		return
	}
	token := held.Refresh
	if token == "" {
		token = held.Access
	}
	if err := g.post(ctx, as.revocation, url.Values{"token": {token}}); err != nil {
		g.log.WarnContext(ctx, "revoke a token", "server", g.name, "error", err)
	}
}

// Begin returns the address at which the person lets the gateway act for them.
func (g *Grants) Begin(ctx context.Context, a Authorization) (string, error) { return g.url(ctx, a) }

// Complete keeps what the person has granted.
func (g *Grants) Complete(ctx context.Context, who Subject, a Authorization) error {
	asked := g.now()
	issued, as, err := g.redeem(ctx, a)
	if err != nil {
		return err
	}
	held := &grant{
		Issuer: as.issuer, Client: g.id, Resource: as.resource, Access: issued.AccessToken, Until: asked.Add(usable(issued)),
		Refresh: issued.RefreshToken, Scopes: either(scopesOf(issued), g.cfg.Scopes),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.store.save(g.key(who, nil), nil, held); err != nil {
		return err
	}
	g.tokens.clear()
	close(g.granted)
	g.granted = make(chan struct{})
	return nil
}

// Wait waits until the person has granted, or ctx ends.
func (g *Grants) Wait(ctx context.Context, who Subject) {
	for {
		g.mu.Lock()
		granted := g.granted
		g.mu.Unlock()
		if _, err := g.Token(ctx, who, nil); !errors.Is(err, ErrNoGrant) {
			return
		}
		select {
		case <-granted:
		case <-ctx.Done():
			return
		}
	}
}

// scopesOf returns the scopes of a token, or nil if it has no list.
func scopesOf(issued *oauth2.Token) []string {
	list, _ := issued.Extra("scope").(string)
	return strings.Fields(list)
}

// post sends a form with the authentication of the client.
func (c *tokenClient) post(ctx context.Context, endpoint string, form url.Values) error {
	secret := ""
	if c.secret != nil {
		secret = c.secret()
	}
	inHeader := secret != "" && (c.auth == "" || c.auth == authBasic)
	if err := c.assert(endpoint, form); err != nil {
		return err
	}
	if !inHeader {
		form.Set("client_id", c.id)
	}
	if secret != "" && !inHeader {
		form.Set("client_secret", secret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if inHeader {
		r.SetBasicAuth(url.QueryEscape(c.id), url.QueryEscape(secret))
	}
	response, err := c.http.Do(r)
	if err != nil {
		return endpointError(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the revocation endpoint answered %d", response.StatusCode)
	}
	return nil
}
