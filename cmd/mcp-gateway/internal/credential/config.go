package credential

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// Types of a [Config].
const (
	TypeExchange          = "exchange"           // the token of the caller is exchanged (RFC 8693)
	TypeClientCredentials = "client_credentials" // the gateway's own token (RFC 6749, section 4.4)
)

// Ways in which the gateway authenticates to a token endpoint (RFC 6749, section 2.3.1).
const (
	authBasic = "basic" // in the Authorization header
	authPost  = "post"  // in the body
)

// A Config says where the token at a server comes from.
type Config struct {
	Type     string `yaml:"type"`
	TokenURL string `yaml:"token_url"`

	ClientID         string `yaml:"client_id"`
	ClientSecretFile string `yaml:"client_secret_file"`
	ClientAuth       string `yaml:"client_auth"` // "" is basic
	// ActorTokenFile has the token by which the gateway is named as the actor of
	// exchanged tokens, ActorTokenType its type: "" is jwt.
	ActorTokenFile string `yaml:"actor_token_file"`
	ActorTokenType string `yaml:"actor_token_type"`

	Audience string   `yaml:"audience"`
	Resource string   `yaml:"resource"` // URL of the server at its authorization server (RFC 8707)
	Scopes   []string `yaml:"scopes" list:"some"`
}

// Check reports all faults of the settings, each as a [yamldoc.SettingError].
func (c *Config) Check() (errs []error) {
	fault := func(key, format string, args ...any) {
		errs = append(errs, &yamldoc.SettingError{Path: []string{key}, Reason: fmt.Sprintf(format, args...)})
	}
	switch c.Type {
	case TypeExchange:
		if c.ClientID == "" && c.ActorTokenFile == "" {
			fault("client_id", "is required: the id of the gateway at the token endpoint, or actor_token_file")
		}
		if c.Audience == "" && c.Resource == "" {
			fault("audience", "is required: the name of the server at the token endpoint, or resource, its URL there")
		}
	case TypeClientCredentials:
		if c.ClientID == "" {
			fault("client_id", "is required: the id of the gateway at the token endpoint")
		}
		if c.ClientSecretFile == "" {
			fault("client_secret_file", "is required: the file with the secret of the client")
		}
		if c.ActorTokenFile != "" {
			fault("actor_token_file", "is for the type %s alone", TypeExchange)
		}
	case "":
		fault("type", "is required: it must be %s or %s", TypeExchange, TypeClientCredentials)
	default:
		fault("type", "must be %s or %s, not %q", TypeExchange, TypeClientCredentials, c.Type)
	}
	switch err := jwks.CheckURL(c.TokenURL); {
	case c.TokenURL == "":
		fault("token_url", "is required: the URL of the token endpoint, such as https://auth.example.com/token")
	case err != nil:
		fault("token_url", "%v", err)
	}
	if u, err := url.Parse(c.Resource); c.Resource != "" && (err != nil || !u.IsAbs() || u.Fragment != "") {
		fault("resource", "must be an absolute URL without a fragment, not %q", c.Resource)
	}
	if c.ClientSecretFile != "" && c.ClientID == "" {
		fault("client_id", "is required beside client_secret_file: the id of the gateway at the token endpoint")
	}
	if !slices.Contains([]string{"", authBasic, authPost}, c.ClientAuth) {
		fault("client_auth", "must be %s or %s, not %q", authBasic, authPost, c.ClientAuth)
	}
	if c.ActorTokenType != "" && actorTypes[c.ActorTokenType] == "" {
		fault("actor_token_type", "must be jwt, access_token or id_token, not %q", c.ActorTokenType)
	}
	for _, scope := range c.Scopes {
		if !ValidScope(scope) {
			fault("scopes", "must be a list of scopes, each without spaces and quotes, not %q", scope)
		}
	}
	return errs
}

// ValidScope reports whether text is one scope (RFC 6749, section 3.3).
func ValidScope(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) < 0
}

// tokenTypePrefix begins the identifiers of types of tokens (RFC 8693, section 3).
const tokenTypePrefix = "urn:ietf:params:oauth:token-type:"

var actorTypes = map[string]string{
	"":             tokenTypePrefix + "jwt",
	"jwt":          tokenTypePrefix + "jwt",
	"access_token": tokenTypePrefix + "access_token",
	"id_token":     tokenTypePrefix + "id_token",
}
