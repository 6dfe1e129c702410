package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/pdp/filereload"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// credentials returns the token at the server, or nil without one. It follows the
// files of the settings.
func (g *gateway) credentials(s *serverConfig) (proxy.Credential, error) {
	if s.BearerFile != "" {
		token, err := openSecret("bearer_file of "+s.Name, s.BearerFile, g.log)
		return fixedToken{token}, err
	}
	if s.Credential == nil {
		return nil, nil
	}
	if g.people != nil && g.people.grants[s.Name] != nil {
		return &grantedToken{g.people, s.Name}, nil
	}
	around, err := surroundings(s.Credential, g.log)
	if err != nil {
		return nil, err
	}
	return issuedToken{credential.New(*s.Credential, around)}, nil
}

// surroundings opens the files of the settings.
func surroundings(c *credential.Config, log *slog.Logger) (around credential.Surroundings, err error) {
	for _, secret := range []struct {
		file     string
		contents *func() string
		read     func(string) (string, error)
	}{{c.ClientSecretFile, &around.Secret, readSecret}, {c.ActorTokenFile, &around.ActorToken, readSecret}, {c.ClientKeyFile, &around.Key, readKey}} {
		if secret.file == "" {
			continue
		}
		value, err := filereload.New(secret.file, func() (string, error) { return secret.read(secret.file) }, filereload.Config{Log: log}, secret.file)
		if err != nil {
			return around, err
		}
		*secret.contents = value.Get
	}
	return around, nil
}

// readKey reads the file of a private key; without a file there is none.
func readKey(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if err := credential.CheckKey(string(text)); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return string(text), nil
}

// A fixedToken is the token of a file.
type fixedToken struct{ *filereload.Value[string] }

// Token implements [proxy.Credential].
func (t fixedToken) Token(_ context.Context, _ *enforce.Caller, scopes []string) (string, error) {
	if len(scopes) > 0 {
		return "", proxy.ErrScopes
	}
	return t.Get(), nil
}

// Drop implements [proxy.Credential].
func (fixedToken) Drop(context.Context, *enforce.Caller, []string, string, bool) bool { return false }

// An issuedToken is from a token endpoint.
type issuedToken struct{ source *credential.Source }

// Token implements [proxy.Credential].
func (t issuedToken) Token(ctx context.Context, c *enforce.Caller, scopes []string) (string, error) {
	token, err := t.source.Token(ctx, subjectOf(c), scopes)
	switch {
	case errors.Is(err, credential.ErrNoToken):
		err = proxy.ErrNoToken
	case errors.Is(err, credential.ErrScopes):
		err = proxy.ErrScopes
	}
	return token, err
}

// Drop implements [proxy.Credential].
func (t issuedToken) Drop(ctx context.Context, c *enforce.Caller, scopes []string, token string, again bool) bool {
	return t.source.Drop(ctx, subjectOf(c), scopes, token, again)
}

func subjectOf(c *enforce.Caller) credential.Subject {
	who := credential.Subject{Tenant: c.Tenant, Type: c.Subject.Type, ID: c.Subject.ID, Token: c.Token.Reveal()}
	if who.Token != "" {
		who.Issuer, _ = c.Claims["iss"].(string)
	}
	return who
}

// checkCredential reports what is wrong with the credential of a server.
func (c *Config) checkCredential(f *faults, s *serverConfig, at string) {
	if s.Credential == nil {
		return
	}
	for _, err := range s.Credential.Check() {
		f.add(yamldoc.Below(err, strings.Split(at+".credential", ".")...))
	}
	f.needs(s.URL != "", at+".url", at+".credential", "the URL of the server that gets the token")
	if s.BearerFile != "" {
		f.fault(at+".credential", "is one credential too many: leave out bearer_file, or this key")
	}
	for key, headers := range map[string]map[string]string{"header": s.Header, "header_files": s.HeaderFiles} {
		for name := range headers {
			if http.CanonicalHeaderKey(name) == "Authorization" {
				f.fault(at+"."+key, "must not have Authorization beside credential")
			}
		}
	}
	if s.Credential.Type == credential.TypeOAuth {
		c.checkPeople(f, s, at)
	}
	if s.Credential.Type == credential.TypeExchange && len(c.Identity.Issuers) == 0 {
		f.fault(at+".credential.type", "%s needs callers with tokens, and no caller has one: configure identity.issuers", credential.TypeExchange)
	}
}
