package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/credential"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/proxy"
	"github.com/policy-service/policy-service/pdp/filereload"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// credentials returns the token at the server, or nil without one. It follows the
// files of the settings.
func (s *serverConfig) credentials(log *slog.Logger) (proxy.Credential, error) {
	if s.BearerFile != "" {
		token, err := openSecret("bearer_file of "+s.Name, s.BearerFile, log)
		return fixedToken{token}, err
	}
	if s.Credential == nil {
		return nil, nil
	}
	var around credential.Surroundings
	for file, contents := range map[*string]*func() string{&s.Credential.ClientSecretFile: &around.Secret, &s.Credential.ActorTokenFile: &around.ActorToken} {
		if *file == "" {
			continue
		}
		secret, err := openSecret(*file, *file, log)
		if err != nil {
			return nil, err
		}
		*contents = secret.Get
	}
	return issuedToken{credential.New(*s.Credential, around)}, nil
}

// A fixedToken is the token of a file.
type fixedToken struct{ *filereload.Value[string] }

// Token implements [proxy.Credential].
func (t fixedToken) Token(context.Context, *enforce.Caller) (string, error) { return t.Get(), nil }

// Drop implements [proxy.Credential].
func (fixedToken) Drop(*enforce.Caller, string) bool { return false }

// An issuedToken is from a token endpoint.
type issuedToken struct{ source *credential.Source }

// Token implements [proxy.Credential].
func (t issuedToken) Token(ctx context.Context, c *enforce.Caller) (string, error) {
	token, err := t.source.Token(ctx, subjectOf(c))
	if errors.Is(err, credential.ErrNoToken) {
		err = proxy.ErrNoToken
	}
	return token, err
}

// Drop implements [proxy.Credential].
func (t issuedToken) Drop(c *enforce.Caller, token string) bool {
	return t.source.Drop(subjectOf(c), token)
}

func subjectOf(c *enforce.Caller) credential.Subject {
	return credential.Subject{Tenant: c.Tenant, Type: c.Subject.Type, ID: c.Subject.ID, Token: c.Token.Reveal()}
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
	if s.Credential.Type == credential.TypeExchange && len(c.Identity.Issuers) == 0 {
		f.fault(at+".credential.type", "%s needs callers with tokens, and no caller has one: configure identity.issuers", credential.TypeExchange)
	}
}
