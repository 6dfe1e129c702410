package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/oauth2"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/jwks"
)

const (
	// providerTimeout limits one request to the provider.
	providerTimeout = 10 * time.Second
	// providerAge is how long the metadata of the provider are used, and providerPause how long it is not
	// asked after it has failed.
	providerAge, providerPause = time.Hour, time.Second
	// answerTimeout limits the question whether the provider answers, and answerAge is how long a yes counts.
	answerTimeout, answerAge = 3 * time.Second, 3 * time.Second
	// maxIDToken limits the size of an ID token in bytes. It is stored beside a vote.
	maxIDToken = 16 << 10
)

// errProvider means that the provider cannot be reached or does not answer as OpenID Connect requires.
var errProvider = errors.New("the identity provider does not answer as it must")

// A party is the console as a relying party of its provider. It is safe for concurrent use.
type party struct {
	OIDC
	secret   string
	redirect string
	client   *http.Client
	now      func() time.Time

	mu     sync.Mutex
	found  *provider // nil after failure
	failed error
	until  time.Time // when the metadata are read again

	silent error     // nil if it answered when it was last asked
	next   time.Time // when it is asked again
}

// name returns the name of the provider's host.
func (p *party) name() string {
	u, err := url.Parse(p.Issuer)
	if err != nil {
		return p.Issuer
	}
	return u.Host
}

// A provider is what its metadata say.
type provider struct {
	oauth  oauth2.Config
	tokens *oidc.IDTokenVerifier
	named  bool // it names itself in its answers (RFC 9207)
}

// newParty returns the party for settings without errors.
func newParty(o OIDC, base string, transport http.RoundTripper, now func() time.Time) (*party, error) {
	p := &party{OIDC: o, redirect: base + pathCallback, client: &http.Client{Transport: transport, Timeout: providerTimeout}, now: now}
	if o.ClientSecretFile == "" {
		return p, nil
	}
	secret, err := os.ReadFile(o.ClientSecretFile)
	if err != nil {
		return nil, fmt.Errorf("console: client_secret_file: %w", err)
	}
	p.secret = strings.TrimSpace(string(secret))
	if p.secret == "" {
		return nil, fmt.Errorf("console: client_secret_file: %s is empty", o.ClientSecretFile)
	}
	return p, nil
}

// provider returns the provider by its metadata, which are read again after a while.
func (p *party) provider(ctx context.Context) (*provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Before(p.until) {
		return p.found, p.failed
	}
	age := providerAge
	if p.found, p.failed = p.read(ctx); p.failed != nil {
		p.failed, age = fmt.Errorf("%w: %w", errProvider, p.failed), providerPause
	}
	p.until = p.now().Add(age)
	return p.found, p.failed
}

// answers returns an error unless the provider answers, so that no browser is led to a host that does not.
func (p *party) answers(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Before(p.next) {
		return p.silent
	}
	age := answerAge
	if p.silent = p.knock(ctx); p.silent != nil {
		p.silent, age = fmt.Errorf("%w: %w", errProvider, withoutSecrets(p.silent)), providerPause
	}
	p.next = p.now().Add(age)
	return p.silent
}

// knock asks the provider for its metadata. It does not end with the request of one person, because the answer
// counts for all.
func (p *party) knock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.Issuer, "/")+"/.well-known/openid-configuration", nil)
	if err != nil {
		return err
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// read reads the metadata of the provider. Its keys are read later, without the request of now.
func (p *party) read(ctx context.Context) (*provider, error) {
	at, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		Named   bool     `json:"authorization_response_iss_parameter_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := at.Claims(&more); err != nil {
		return nil, err
	}
	scopes := p.RequestScopes
	if scopes == nil {
		scopes = []string{"email", "profile"}
	}
	endpoint := at.Endpoint()
	for _, at := range []string{endpoint.AuthURL, endpoint.TokenURL} {
		if err := jwks.CheckURL(at); err != nil {
			return nil, err
		}
	}
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if p.secret == "" || more.Methods != nil && !slices.Contains(more.Methods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &provider{
		oauth: oauth2.Config{
			ClientID: p.ClientID, ClientSecret: p.secret, Endpoint: endpoint, RedirectURL: p.redirect,
			Scopes: append([]string{oidc.ScopeOpenID}, scopes...),
		},
		tokens: at.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.now}),
		named:  more.Named,
	}, nil
}

// address returns the URL at which the person signs in.
func (p *party) address(ctx context.Context, s *signIn, state string) (string, error) {
	at, err := p.provider(ctx)
	if err != nil {
		return "", err
	}
	if err := p.answers(ctx); err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(s.verifier), oidc.Nonce(s.nonce)}
	if s.other {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"))
	}
	if s.pending != nil { // max_age=0 alone lets some providers skip the question within a second
		options = append(options, oauth2.SetAuthURLParam("max_age", "0"), oauth2.SetAuthURLParam("prompt", "login"))
		if p.ACRValues != nil {
			options = append(options, oauth2.SetAuthURLParam("acr_values", strings.Join(p.ACRValues, " ")))
		}
	}
	return at.oauth.AuthCodeURL(state, options...), nil
}

// An idToken is a verified ID token.
type idToken struct {
	raw    string
	claims callers.Claims
	authn  approval.Authn
}

// errAnswer means that an answer of the provider is not for this sign-in.
var errAnswer = errors.New("the answer of the identity provider is not for this sign-in")

// redeem exchanges the code of an answer for an ID token, and verifies it.
func (p *party) redeem(ctx context.Context, s *signIn, code, iss string) (*idToken, error) {
	at, err := p.provider(ctx)
	if err != nil {
		return nil, err
	}
	if iss != p.Issuer && (iss != "" || at.named) { // RFC 9207
		return nil, fmt.Errorf("%w: it is of another issuer", errAnswer)
	}
	got, err := at.oauth.Exchange(oidc.ClientContext(ctx, p.client), code, oauth2.VerifierOption(s.verifier))
	if err != nil {
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError {
			return nil, fmt.Errorf("%w: the provider refused its code (%s)", errAnswer, cmp.Or(refused.ErrorCode, refused.Response.Status))
		}
		return nil, fmt.Errorf("%w: %w", errProvider, withoutSecrets(err))
	}
	raw, _ := got.Extra("id_token").(string)
	if raw == "" || len(raw) > maxIDToken {
		return nil, fmt.Errorf("%w: it has no ID token, or one of more than %d bytes", errProvider, maxIDToken)
	}
	return p.verify(ctx, at, s, raw)
}

// keyOf returns the id of the key that signed a verified token, or "".
func keyOf(raw string) string {
	header, _, _ := strings.Cut(raw, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	var named struct {
		Key string `json:"kid"`
	}
	if err != nil || json.Unmarshal(text, &named) != nil || len(named.Key) > maxKeyID {
		return ""
	}
	return named.Key
}

// maxKeyID limits the id of a key that is recorded, in bytes.
const maxKeyID = 200

// withoutSecrets returns the cause of an error without the URL and the body of the request.
func withoutSecrets(err error) error {
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(cause) {
		err = cause
	}
	return err
}

// verify returns an ID token that is for this sign-in (OpenID Connect Core, section 3.1.3.7).
func (p *party) verify(ctx context.Context, at *provider, s *signIn, raw string) (*idToken, error) {
	verified, err := at.tokens.Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	var payload jsontext.Value
	if err := verified.Claims(&payload); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	claims, err := callers.ReadClaims(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if claims["nonce"] != s.nonce {
		return nil, fmt.Errorf("%w: its nonce is another", errAnswer)
	}
	if azp, there := claims["azp"]; there && azp != p.ClientID || len(verified.Audience) > 1 && !there {
		return nil, fmt.Errorf("%w: it is for another client", errAnswer)
	}
	proof := claims.Proof(p.Issuer, verified.Subject)
	digest := sha256.Sum256([]byte(raw))
	return &idToken{raw: raw, claims: claims, authn: approval.Authn{
		Method: approval.MethodOIDC, Issuer: proof.Issuer, Subject: proof.Subject, ACR: proof.ACR, AMR: proof.AMR, Time: proof.Time,
		Token: "sha256:" + hex.EncodeToString(digest[:]), Key: keyOf(raw),
	}}, nil
}
