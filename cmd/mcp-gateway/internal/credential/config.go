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
	TypeOAuth             = "oauth"              // the person behind the caller lets the gateway act for them (RFC 6749, section 4.1)
)

// Ways in which the gateway authenticates to a token endpoint (RFC 6749, section 2.3.1).
const (
	authBasic = "basic"           // in the Authorization header
	authPost  = "post"            // in the body
	authJWT   = "private_key_jwt" // by a signed assertion (RFC 7523)
)

// A Config says where the token at a server comes from.
type Config struct {
	Type     string `yaml:"type"`
	TokenURL string `yaml:"token_url"`
	// Issuer is the authorization server of the type oauth; "" is the one that the
	// server names (RFC 9728). AuthorizationURL is for one without metadata.
	Issuer           string `yaml:"issuer"`
	AuthorizationURL string `yaml:"authorization_url"`

	ClientID         string `yaml:"client_id"`
	ClientSecretFile string `yaml:"client_secret_file"`
	ClientAuth       string `yaml:"client_auth"` // "" is basic
	// ClientKeyFile has the private key for private_key_jwt, ClientKeyID its name at
	// the authorization server.
	ClientKeyFile string `yaml:"client_key_file"`
	ClientKeyID   string `yaml:"client_key_id"`
	// ActorTokenFile has the token by which the gateway is named as the actor of
	// exchanged tokens, ActorTokenType its type: "" is jwt.
	ActorTokenFile string `yaml:"actor_token_file"`
	ActorTokenType string `yaml:"actor_token_type"`

	Audience string   `yaml:"audience"`
	Resource string   `yaml:"resource"` // URL of the server at its authorization server (RFC 8707)
	Scopes   []string `yaml:"scopes" list:"some"`
}

// Check reports all faults of the settings, each as a [yamldoc.SettingError].
func (c *Config) Check() []error {
	f := new(faults)
	switch c.Type {
	case TypeExchange:
		c.checkExchange(f)
	case TypeClientCredentials:
		f.require("client_id", c.ClientID, "the id of the gateway at the token endpoint")
		if c.ClientAuth != authJWT {
			f.require("client_secret_file", c.ClientSecretFile, "the file with the secret of the client")
		}
	case TypeOAuth:
		c.checkOAuth(f)
	case "":
		f.add("type", "is required: it must be %s, %s or %s", TypeExchange, TypeOAuth, TypeClientCredentials)
	default:
		f.add("type", "must be %s, %s or %s, not %q", TypeExchange, TypeOAuth, TypeClientCredentials, c.Type)
	}
	if c.Type != TypeOAuth {
		f.require("token_url", c.TokenURL, "the URL of the token endpoint, such as https://auth.example.com/token")
		f.only("issuer", c.Issuer, TypeOAuth)
		f.only("authorization_url", c.AuthorizationURL, TypeOAuth)
	}
	if c.Type != TypeExchange && c.Type != "" {
		f.only("actor_token_file", c.ActorTokenFile, TypeExchange)
	}
	c.checkClient(f)
	f.url("token_url", c.TokenURL)
	f.url("issuer", c.Issuer)
	f.url("authorization_url", c.AuthorizationURL)
	if u, err := url.Parse(c.Resource); c.Resource != "" && (err != nil || !u.IsAbs() || u.Fragment != "") {
		f.add("resource", "must be an absolute URL without a fragment, not %q", c.Resource)
	}
	if c.ActorTokenType != "" && actorTypes[c.ActorTokenType] == "" {
		f.add("actor_token_type", "must be jwt, access_token or id_token, not %q", c.ActorTokenType)
	}
	for _, scope := range c.Scopes {
		if !ValidScope(scope) {
			f.add("scopes", "must be a list of scopes, each without spaces and quotes, not %q", scope)
		}
	}
	return f.errs
}

func (c *Config) checkExchange(f *faults) {
	if c.ClientID == "" && c.ActorTokenFile == "" {
		f.add("client_id", "is required: the id of the gateway at the token endpoint, or actor_token_file")
	}
	if c.Audience == "" && c.Resource == "" {
		f.add("audience", "is required: the name of the server at the token endpoint, or resource, its URL there")
	}
}

// checkOAuth reports what is wrong with the authorization server. A server must not
// choose who gets the secret of the gateway.
func (c *Config) checkOAuth(f *faults) {
	if c.Audience != "" {
		f.add("audience", "is not for the type %s: name the server by resource", TypeOAuth)
	}
	if (c.AuthorizationURL == "") != (c.TokenURL == "") {
		f.add("authorization_url", "and token_url are required together, or neither")
	}
	if (c.ClientSecretFile != "" || c.ClientKeyFile != "") && c.Issuer == "" && c.AuthorizationURL == "" {
		f.add("issuer", "is required for a client with a secret or a key: the authorization server that may get them")
	}
}

// checkClient reports what is wrong with how the gateway authenticates.
func (c *Config) checkClient(f *faults) {
	if c.ClientSecretFile != "" {
		f.require("client_id", c.ClientID, "the id of the gateway at the token endpoint, beside client_secret_file")
	}
	switch c.ClientAuth {
	case "", authBasic, authPost:
		if c.ClientKeyFile != "" {
			f.add("client_key_file", "is for client_auth: %s alone", authJWT)
		}
	case authJWT:
		f.require("client_id", c.ClientID, "the id of the gateway at the token endpoint, beside client_key_file")
		f.require("client_key_file", c.ClientKeyFile, "the file with the private key of the client")
		if c.ClientSecretFile != "" {
			f.add("client_secret_file", "is not for client_auth: %s", authJWT)
		}
	default:
		f.add("client_auth", "must be %s, %s or %s, not %q", authBasic, authPost, authJWT, c.ClientAuth)
	}
	if c.ClientKeyID != "" && c.ClientKeyFile == "" {
		f.add("client_key_file", "is required beside client_key_id: the file of the key")
	}
}

// faults collects what is wrong with settings.
type faults struct{ errs []error }

func (f *faults) add(key, format string, args ...any) {
	fault := &yamldoc.SettingError{Path: []string{key}, Reason: fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(f.errs, func(err error) bool { return err.(*yamldoc.SettingError).Path[0] == key }) {
		f.errs = append(f.errs, fault)
	}
}

func (f *faults) require(key, value, be string) {
	if value == "" {
		f.add(key, "is required: %s", be)
	}
}

func (f *faults) only(key, value, kind string) {
	if value != "" {
		f.add(key, "is for the type %s alone", kind)
	}
}

func (f *faults) url(key, value string) {
	if err := jwks.CheckURL(value); value != "" && err != nil {
		f.add(key, "%v", err)
	}
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
