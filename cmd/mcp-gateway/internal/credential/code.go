package credential

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"golang.org/x/oauth2"
)

// Answers to an authorization request.
var (
	// ErrIssuer means that an answer is not from the authorization server that was
	// asked (RFC 9207).
	ErrIssuer = errors.New("the answer is of another authorization server")
	errNoID   = errors.New("the authorization server issued no ID token")
)

// An Authorization is an authorization request of one person (RFC 6749, section 4.1)
// and the answer to it.
type Authorization struct {
	State    string
	Verifier string // of PKCE (RFC 7636)
	Nonce    string // of an ID token; "" without one

	Code   string
	Issuer string // iss of the answer, or ""
}

// NewVerifier returns a new verifier of PKCE.
func NewVerifier() string { return oauth2.GenerateVerifier() }

// A codeClient is the gateway as a client in the authorization code flow.
type codeClient struct {
	tokenClient
	cfg      Config
	redirect string // URL to which the authorization server leads the person back
	servers  *directory
}

func newCodeClient(cfg *Config, around *Surroundings, server, redirect string) codeClient {
	c := codeClient{tokenClient: newTokenClient(cfg, around), cfg: *cfg, redirect: redirect}
	c.servers = &directory{cfg: *cfg, server: server, http: c.http, now: around.Now}
	return c
}

// url returns the authorization request.
func (c *codeClient) url(ctx context.Context, a Authorization) (string, error) {
	as, err := c.servers.find(ctx)
	if err != nil {
		return "", err
	}
	request := oauth2.Config{ClientID: c.id, Endpoint: oauth2.Endpoint{AuthURL: as.authorization}, RedirectURL: c.redirect, Scopes: c.cfg.Scopes}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(a.Verifier)}
	if a.Nonce != "" {
		options = append(options, oauth2.SetAuthURLParam("nonce", a.Nonce))
	} else {
		options = append(options, oauth2.SetAuthURLParam("resource", as.resource))
	}
	return request.AuthCodeURL(a.State, options...), nil
}

// redeem gets a token for a code.
func (c *codeClient) redeem(ctx context.Context, a Authorization) (*oauth2.Token, *authorizationServer, error) {
	as, err := c.servers.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	if a.Issuer == "" && as.namesItself || a.Issuer != "" && as.issuer != "" && a.Issuer != as.issuer {
		return nil, nil, ErrIssuer
	}
	params := url.Values{"grant_type": {"authorization_code"}, "code": {a.Code}, "redirect_uri": {c.redirect}, "code_verifier": {a.Verifier}}
	if a.Nonce == "" {
		params.Set("resource", as.resource)
	}
	issued, err := c.request(ctx, as.token, params, nil)
	if err != nil {
		return nil, nil, endpointError(err, a.Code, a.Verifier)
	}
	return issued, as, checkIssued(issued, false)
}

// A Login is the gateway as a client of the issuer of its callers (OpenID Connect
// Core, section 3.1). It is safe for concurrent use.
type Login struct{ codeClient }

// NewLogin returns the login at the issuer of the Config.
func NewLogin(cfg Config, around Surroundings, redirect string) *Login {
	if around.Now == nil {
		around.Now = time.Now
	}
	return &Login{newCodeClient(&cfg, &around, "", redirect)}
}

// URL returns the address at which the person logs in.
func (l *Login) URL(ctx context.Context, a Authorization) (string, error) { return l.url(ctx, a) }

// IDToken returns the ID token of who has logged in, which is not verified yet.
func (l *Login) IDToken(ctx context.Context, a Authorization) (string, error) {
	issued, _, err := l.redeem(ctx, a)
	if err != nil {
		return "", fmt.Errorf("log in: %w", err)
	}
	token, _ := issued.Extra("id_token").(string)
	if token == "" {
		return "", errNoID
	}
	return token, nil
}
