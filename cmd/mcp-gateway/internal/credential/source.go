package credential

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"
)

// ErrNoToken means that the caller has no token that could be exchanged.
var ErrNoToken = errors.New("the caller has no token to exchange")

// A Subject is the caller that a token is for.
type Subject struct {
	Tenant, Type, ID string
	Token            string // the caller's own, verified
}

// Surroundings are what a [Source] needs from outside. The functions return the
// contents of the files of its Config and are nil without them.
type Surroundings struct {
	Secret, ActorToken func() string
	Now                func() time.Time // nil is time.Now
	Timeout            time.Duration    // of the token endpoint; 0 is 10 seconds
	MaxTokens          int              // in the cache; 0 is 10,000
}

const (
	defaultTimeout   = 10 * time.Second
	defaultMaxTokens = 10_000
	// unknownLifetime is how long a token is used that does not say when it expires.
	unknownLifetime = time.Minute
	// margin is the longest time before its end at which a token is used no more. Of
	// short-lived tokens it is a tenth.
	margin = 30 * time.Second
)

// A Source gets tokens for one server. It is safe for concurrent use.
type Source struct {
	cfg      Config
	around   Surroundings
	client   *http.Client
	requests singleflight.Group // by key

	mu     sync.Mutex
	tokens map[key]entry
}

// A key is of what a token was issued for.
type key [sha256.Size]byte

type entry struct {
	token string
	until time.Time // it is used
}

// New returns a Source for a valid Config.
func New(cfg Config, around Surroundings) *Source {
	if around.Now == nil {
		around.Now = time.Now
	}
	around.MaxTokens = cmp.Or(around.MaxTokens, defaultMaxTokens)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &Source{cfg: cfg, around: around, tokens: make(map[key]entry), client: &http.Client{
		Timeout: cmp.Or(around.Timeout, defaultTimeout), Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Token returns a token for requests of a caller, from the cache or the token
// endpoint. Requests that need the same token share one request for it.
func (s *Source) Token(ctx context.Context, caller Subject) (string, error) {
	if s.cfg.Type == TypeExchange && caller.Token == "" {
		return "", ErrNoToken
	}
	k := s.key(caller)
	if token, ok := s.cached(k); ok {
		return token, nil
	}
	fetched := s.requests.DoChan(string(k[:]), func() (any, error) {
		return s.fetch(context.WithoutCancel(ctx), k, caller)
	})
	select {
	case result := <-fetched:
		token, _ := result.Val.(string)
		return token, result.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Drop removes a token that the server has refused. It reports whether a new one may
// be had.
func (s *Source) Drop(caller Subject, token string) bool {
	k := s.key(caller)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[k].token == token {
		delete(s.tokens, k)
	}
	return true
}

// key returns the key of a caller's token. The gateway's own is the same for all.
func (s *Source) key(caller Subject) key {
	if s.cfg.Type == TypeClientCredentials {
		return key{}
	}
	own := sha256.Sum256([]byte(caller.Token))
	return sha256.Sum256([]byte(strings.Join([]string{caller.Tenant, caller.Type, caller.ID, string(own[:])}, "\x00")))
}

func (s *Source) cached(k key) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.tokens[k]
	return e.token, ok && s.around.Now().Before(e.until)
}

// fetch gets a token from the token endpoint and caches it.
func (s *Source) fetch(ctx context.Context, k key, caller Subject) (string, error) {
	if token, ok := s.cached(k); ok {
		return token, nil // the flight before has just got it
	}
	asked := s.around.Now()
	issued, err := s.config(caller).Token(context.WithValue(ctx, oauth2.HTTPClient, s.client))
	if err != nil {
		return "", endpointError(err, caller.Token)
	}
	if err := checkIssued(issued, s.cfg.Type == TypeExchange); err != nil {
		return "", err
	}
	s.keep(k, entry{issued.AccessToken, asked.Add(usable(issued))})
	return issued.AccessToken, nil
}

// usable returns how long a token that was just issued is used.
func usable(issued *oauth2.Token) time.Duration {
	if issued.Expiry.IsZero() {
		return unknownLifetime
	}
	lifetime := time.Until(issued.Expiry).Round(time.Second)
	return lifetime - min(margin, lifetime/10)
}

// keep caches a token. A full cache loses the tokens that have expired or, without
// any, the one that expires first.
func (s *Source) keep(k key, e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tokens) >= s.around.MaxTokens {
		s.evict()
	}
	s.tokens[k] = e
}

func (s *Source) evict() {
	now, first := s.around.Now(), key{}
	var soonest time.Time
	for k, e := range s.tokens {
		if !now.Before(e.until) {
			delete(s.tokens, k)
		} else if soonest.IsZero() || e.until.Before(soonest) {
			first, soonest = k, e.until
		}
	}
	if len(s.tokens) >= s.around.MaxTokens {
		delete(s.tokens, first)
	}
}

// config returns the request for a token: a token exchange is a request with other
// parameters (RFC 8693, section 2.1).
func (s *Source) config(caller Subject) *clientcredentials.Config {
	c := &clientcredentials.Config{
		ClientID: s.cfg.ClientID, TokenURL: s.cfg.TokenURL, Scopes: s.cfg.Scopes, AuthStyle: oauth2.AuthStyleInHeader, EndpointParams: url.Values{},
	}
	if s.around.Secret != nil {
		c.ClientSecret = s.around.Secret()
	}
	if s.cfg.ClientAuth == authPost || c.ClientSecret == "" {
		c.AuthStyle = oauth2.AuthStyleInParams
	}
	set := func(name, value string) {
		if value != "" {
			c.EndpointParams.Set(name, value)
		}
	}
	set("audience", s.cfg.Audience)
	set("resource", s.cfg.Resource)
	if s.cfg.Type != TypeExchange {
		return c
	}
	set("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
	set("subject_token", caller.Token)
	set("subject_token_type", tokenTypePrefix+"access_token")
	set("requested_token_type", tokenTypePrefix+"access_token")
	if s.around.ActorToken != nil {
		set("actor_token", s.around.ActorToken())
		set("actor_token_type", actorTypes[s.cfg.ActorTokenType])
	}
	return c
}
