package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/consent"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/endpoint"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/identity"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/pdp/jwks"
)

// credentialsFile has what people have granted, in the state directory.
const credentialsFile = "credentials.db"

// A loginConfig is the gateway as a client of an issuer of callers.
type loginConfig struct {
	Issuer           string `yaml:"issuer"` // "" is the only one
	ClientID         string `yaml:"client_id"`
	ClientSecretFile string `yaml:"client_secret_file"`
	// AuthorizationURL and TokenURL are for an issuer whose metadata lack them or PKCE.
	AuthorizationURL string `yaml:"authorization_url"`
	TokenURL         string `yaml:"token_url"`
}

// loginIssuer returns the issuer at which people log in, or nil.
func (c *Config) loginIssuer() *identity.Issuer {
	login := c.Identity.Login
	if login == nil {
		return nil
	}
	n := slices.IndexFunc(c.Identity.Issuers, func(i identity.Issuer) bool { return i.Issuer == login.Issuer })
	if login.Issuer == "" && len(c.Identity.Issuers) == 1 {
		n = 0
	}
	if n < 0 {
		return nil
	}
	return &c.Identity.Issuers[n]
}

// checkLogin reports what is wrong with the login of people.
func (c *Config) checkLogin(f *faults) {
	login := c.Identity.Login
	if login == nil {
		return
	}
	f.must(login.ClientID != "", "identity.login.client_id", "", "the id of the gateway at the issuer")
	f.must(c.loginIssuer() != nil, "identity.login.issuer", login.Issuer, "one of identity.issuers")
	for path, value := range map[string]string{"identity.login.authorization_url": login.AuthorizationURL, "identity.login.token_url": login.TokenURL} {
		if err := jwks.CheckURL(value); value != "" && err != nil {
			f.fault(path, "%v", err)
		}
		f.must((login.AuthorizationURL == "") == (login.TokenURL == "") || value != "", path, "", "the URL of that endpoint, or neither is there")
	}
	f.needs(c.Identity.Resource != "", "identity.resource", "identity.login", "the URL of the gateway, to which the issuer leads people back")
}

// checkPeople reports that nobody could be told from another who grants access to a
// server.
func (c *Config) checkPeople(f *faults, s *serverConfig, at string) {
	at += ".credential.type"
	switch {
	case len(c.Identity.Issuers) > 0:
		f.needs(c.Identity.Login != nil, "identity.login", at, "the login of callers, so that nobody grants access for another person")
	case c.Identity.Local == nil:
		f.fault(at, "%s needs callers who can log in: configure identity.issuers and identity.login, or identity.local", credential.TypeOAuth)
	}
	if c.Insecure && c.Identity.Local != nil {
		f.fault(at, "%s is not possible with insecure and identity.local: everybody would be the same person", credential.TypeOAuth)
	}
	if s.Credential.ClientID == "" {
		err := jwks.CheckURL(c.Identity.Resource)
		f.needs(err == nil && c.Identity.Resource != "", "identity.resource", at, "an https URL of the gateway, at which the authorization server reads its metadata, or configure credential.client_id")
	}
	for _, path := range []string{consent.PathStart, consent.PathLogin, consent.PathCallback, consent.PathClient} {
		for i := range c.Servers {
			if c.Servers[i].Endpoint() == path {
				f.fault(fmt.Sprintf("servers.%d.path", i), "must be another: %s is a page of the gateway", path)
			}
		}
	}
}

// people are those who let the gateway act for them at servers.
type people struct {
	pages  *consent.Handler
	grants map[string]*credential.Grants // by server
}

// routePeople adds the pages of people, if a server needs them.
func (g *gateway) routePeople(r *routing) error {
	if len(g.cfg.grantedServers()) == 0 {
		return nil
	}
	if g.people == nil {
		if err := g.openPeople(r.address); err != nil {
			return err
		}
	}
	for _, path := range []string{consent.PathStart, consent.PathLogin, consent.PathCallback, consent.PathClient} {
		r.patterns[path] = true
	}
	front := &endpoint.Front{Hosts: hosts(g.cfg.Hosts, r.address), Origins: g.cfg.Origins}
	g.people.pages.Register(r.mux, front.AdmitPage)
	return nil
}

// grantedServers returns the servers at which people let the gateway act for them.
func (c *Config) grantedServers() (all []serverConfig) {
	for i := range c.Servers {
		if s := &c.Servers[i]; s.Credential != nil && s.Credential.Type == credential.TypeOAuth {
			all = append(all, s.ofEndpoint())
		}
	}
	return all
}

// openPeople opens what people have granted.
func (g *gateway) openPeople(address string) error {
	store, err := credential.OpenStore(filepath.Join(g.cfg.State, credentialsFile), g.seal)
	if err != nil {
		return err
	}
	base := g.cfg.base(address)
	g.people = &people{grants: make(map[string]*credential.Grants)}
	for _, s := range g.cfg.grantedServers() {
		around, err := surroundings(s.Credential, g.log)
		if err != nil {
			return fmt.Errorf("servers: %s: %w", s.Name, err)
		}
		settings := *s.Credential
		settings.ClientID = cmp.Or(settings.ClientID, consent.Address(base, consent.PathClient))
		g.people.grants[s.Name] = credential.NewGrants(settings, around, s.Name, s.URL, consent.Address(base, consent.PathCallback), store, g.log)
	}
	cfg := consent.Config{Base: base, Grants: g.people.grants, Store: store, Seal: g.seal, Local: g.callers.isLocal, Log: g.log}
	if cfg.Login, err = g.login(base); err != nil {
		return fmt.Errorf("identity.login: %w", err)
	}
	if cfg.Login != nil {
		cfg.Issuer = g.cfg.loginIssuer().Issuer
	}
	g.people.pages = consent.New(cfg)
	return nil
}

// base returns the URL of the gateway: as clients know it or, without one, where it
// listens.
func (c *Config) base(address string) string {
	switch {
	case c.Identity.Resource != "":
		return c.Identity.Resource
	case c.TLSCert != "":
		return "https://" + address
	}
	return "http://" + address
}

// isLocal reports whether a caller is the one of this host.
func (c *callers) isLocal(who credential.Subject) bool {
	return c.local != nil && who.Issuer == "" && subjectOf(c.local) == who
}

// A login is the one at an issuer of callers.
type login struct {
	*credential.Login
	verifier *identity.Verifier
}

// login returns the login of people, or nil without one.
func (g *gateway) login(base string) (consent.Login, error) {
	issuer := g.cfg.loginIssuer()
	if issuer == nil {
		return nil, nil
	}
	settings := g.cfg.Identity.Login
	cfg := credential.Config{
		Issuer: issuer.Issuer, AuthorizationURL: settings.AuthorizationURL, TokenURL: settings.TokenURL,
		ClientID: settings.ClientID, ClientSecretFile: settings.ClientSecretFile, Scopes: []string{"openid"},
	}
	around, err := surroundings(&cfg, g.log)
	if err != nil {
		return nil, err
	}
	of := *issuer
	of.Audience = settings.ClientID // of ID tokens
	verifier, err := identity.New(identity.Config{Resource: g.cfg.Identity.Resource, Issuers: []identity.Issuer{of}})
	return &login{credential.NewLogin(cfg, around, consent.Address(base, consent.PathLogin)), verifier}, err
}

var errNonce = errors.New("the ID token is of another login")

// Person implements [consent.Login].
func (l *login) Person(ctx context.Context, a credential.Authorization) (credential.Subject, error) {
	token, err := l.IDToken(ctx, a)
	if err != nil {
		return credential.Subject{}, err
	}
	who, err := l.verifier.Token(ctx, token)
	if err != nil {
		return credential.Subject{}, err
	}
	if who.Claims["nonce"] != a.Nonce {
		return credential.Subject{}, errNonce
	}
	return subjectOf(callerOf(who)), nil
}

// A grantedToken is one that the person behind the caller lets the gateway have.
type grantedToken struct {
	*people
	server string
}

// Token implements [proxy.Credential].
func (t *grantedToken) Token(ctx context.Context, c *enforce.Caller, scopes []string) (string, error) {
	who := subjectOf(c)
	token, err := t.grants[t.server].Token(ctx, who, scopes)
	switch {
	case errors.Is(err, credential.ErrScopes):
		err = proxy.ErrScopes
	case errors.Is(err, credential.ErrNoGrant):
		err = t.ask(who)
	}
	return token, err
}

// ask returns the page at which the person has to go first.
func (t *grantedToken) ask(who credential.Subject) error {
	address, id, err := t.pages.Ticket(t.server, who)
	if errors.Is(err, consent.ErrNoPerson) {
		return fmt.Errorf("%w: %w", proxy.ErrNoToken, err)
	}
	if err != nil {
		return err
	}
	return &proxy.ConsentError{URL: address, ID: id, Wait: func(ctx context.Context) { t.grants[t.server].Wait(ctx, who) }}
}

// Drop implements [proxy.Credential].
func (t *grantedToken) Drop(ctx context.Context, c *enforce.Caller, scopes []string, token string, again bool) bool {
	return t.grants[t.server].Drop(ctx, subjectOf(c), scopes, token, again)
}
