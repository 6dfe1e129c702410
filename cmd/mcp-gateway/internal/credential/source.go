package credential

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

// ErrNoToken means that the caller has no token that could be exchanged.
var ErrNoToken = errors.New("the caller has no token to exchange")

// A Subject is the caller that a token is for.
type Subject struct {
	Tenant, Type, ID string
	Issuer           string // of Token; "" without one
	Token            string // the caller's own, verified
}

// Surroundings are what a [Source] needs from outside. The functions return the
// contents of the files of its Config and are nil without them.
type Surroundings struct {
	Secret, ActorToken func() string
	Key                func() string    // in PEM
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
	client   tokenClient
	requests singleflight.Group // by key
	tokens   *cache
}

// New returns a Source for a valid Config.
func New(cfg Config, around Surroundings) *Source {
	if around.Now == nil {
		around.Now = time.Now
	}
	return &Source{cfg: cfg, around: around, tokens: newCache(&around), client: newTokenClient(&cfg, &around)}
}

// Token returns a token for requests of a caller, from the cache or the token
// endpoint. It has the scopes, or those of the settings if there are none. Requests
// that need the same token share one request for it.
func (s *Source) Token(ctx context.Context, caller Subject, scopes []string) (string, error) {
	if s.cfg.Type == TypeExchange && caller.Token == "" {
		return "", ErrNoToken
	}
	if !isNarrower(scopes, s.cfg.Scopes) {
		return "", ErrScopes
	}
	k := s.key(caller, scopes)
	if token, ok := s.tokens.get(k); ok {
		return token, nil
	}
	return await(ctx, s.requests.DoChan(string(k[:]), func() (any, error) {
		return s.fetch(context.WithoutCancel(ctx), k, caller, scopes)
	}))
}

// await waits for a token, or the end of ctx.
func await(ctx context.Context, fetched <-chan singleflight.Result) (string, error) {
	select {
	case result := <-fetched:
		token, _ := result.Val.(string)
		return token, result.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Drop removes a token that the server has refused. It reports whether another may be
// had: one that was got in place of a refused one, and is refused too, is the last.
func (s *Source) Drop(_ context.Context, caller Subject, scopes []string, token string, again bool) bool {
	s.tokens.drop(s.key(caller, scopes), token)
	return !again
}

// key returns the key of a caller's token. The gateway's own is the same for all.
func (s *Source) key(caller Subject, scopes []string) key {
	narrowed := joined(scopes)
	if s.cfg.Type == TypeClientCredentials {
		return keyOf(narrowed)
	}
	own := sha256.Sum256([]byte(caller.Token))
	return keyOf(caller.Tenant, caller.Type, caller.ID, string(own[:]), narrowed)
}

// fetch gets a token from the token endpoint and caches it.
func (s *Source) fetch(ctx context.Context, k key, caller Subject, scopes []string) (string, error) {
	if token, ok := s.tokens.get(k); ok {
		return token, nil // the flight before has just got it
	}
	asked := s.around.Now()
	issued, err := s.client.request(ctx, s.cfg.TokenURL, s.params(caller), either(scopes, s.cfg.Scopes))
	if err != nil {
		return "", endpointError(err, caller.Token)
	}
	if err := errors.Join(checkIssued(issued, s.cfg.Type == TypeExchange), checkNarrowed(issued, scopes)); err != nil {
		return "", err
	}
	s.tokens.keep(k, entry{issued.AccessToken, asked.Add(usable(issued))})
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

// params returns the parameters of the request for a token.
func (s *Source) params(caller Subject) url.Values {
	params := url.Values{}
	set := func(name, value string) {
		if value != "" {
			params.Set(name, value)
		}
	}
	set("audience", s.cfg.Audience)
	set("resource", s.cfg.Resource)
	if s.cfg.Type != TypeExchange {
		return params
	}
	set("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
	set("subject_token", caller.Token)
	set("subject_token_type", tokenTypePrefix+"access_token")
	set("requested_token_type", tokenTypePrefix+"access_token")
	if s.around.ActorToken != nil {
		set("actor_token", s.around.ActorToken())
		set("actor_token_type", actorTypes[s.cfg.ActorTokenType])
	}
	return params
}

// joined returns scopes as one text, whatever their order.
func joined(scopes []string) string { return strings.Join(sorted(scopes), " ") }
