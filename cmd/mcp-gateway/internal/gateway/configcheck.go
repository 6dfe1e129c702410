package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/calllimit"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/coaz"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/pdp/filereload"
	"github.com/policy-service/policy-service/pdp/jwks"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// faults collects what is wrong with settings, each by the keys that lead to it.
type faults struct{ errs []error }

func (f *faults) add(err error) {
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

// fault reports a setting, by a path with dots.
func (f *faults) fault(path, format string, args ...any) {
	f.add(&yamldoc.SettingError{Path: strings.Split(path, "."), Reason: fmt.Sprintf(format, args...)})
}

// needs reports a setting that is required because of another.
func (f *faults) needs(ok bool, path, because, be string) {
	if !ok {
		f.add(&yamldoc.SettingError{Path: strings.Split(path, "."), At: strings.Split(because, "."), Reason: "is required beside " + because + ": " + be})
	}
}

// must reports a setting of text that is missing, or is not what it must be.
func (f *faults) must(ok bool, path, value, be string) {
	switch {
	case ok:
	case value == "":
		f.fault(path, "is required: it must be %s", be)
	default:
		f.fault(path, "must be %s, not %q", be, value)
	}
}

// headerName is a token of HTTP (RFC 9110, section 5.6.2).
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

var serverName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Check reports all invalid settings at once, each as a [yamldoc.SettingError].
// ListenKey is the name by which errors refer to c.Listen: the key listen, or the
// flag that has replaced its value.
func (c *Config) Check(listenKey string) error {
	f := new(faults)
	f.must(isURL(c.PDP.URL), "pdp.url", c.PDP.URL, "the URL of a policy decision point, such as http://127.0.0.1:8080")
	for path, value := range map[string]duration{"pdp.timeout": c.PDP.Timeout, "pdp.pause": c.PDP.Pause} {
		if value <= 0 {
			f.fault(path, "must be more than 0, not %s", value)
		}
	}
	if c.PDP.Failures == 0 {
		f.fault("pdp.failures", "must be a whole number from 1, not 0")
	}
	if fault := c.Mode.check(); fault != "" {
		f.fault("mode", "%s", fault)
	}
	if fault := c.ToolAuthorization.check(); fault != "" {
		f.fault("tool_authorization", "%s", fault)
	}
	if age := c.Trail.RetentionAge; age != 0 && age < time.Hour {
		f.fault("trail.retention_age", "must be at least 1h, not %s", age)
	}
	if c.Denial.HTTPStatus != 200 && c.Denial.HTTPStatus != 403 {
		f.fault("denial.http_status", "must be 200 or 403, not %d", c.Denial.HTTPStatus)
	}
	switch c.Denial.Codes {
	case "", enforce.CodesApplication, enforce.CodesCOAZ, enforce.CodesMCPX:
	default:
		f.fault("denial.codes", "must be %s, %s or %s, not %q", enforce.CodesApplication, enforce.CodesCOAZ, enforce.CodesMCPX, c.Denial.Codes)
	}
	if fault := c.Catalog.Arguments.check(); fault != "" {
		f.fault("catalog.arguments", "%s", fault)
	}
	page := c.Approval.Page
	f.must(page == "" || isURL(page) && strings.Contains(page, "{task}"), "approval.page", page, "a URL with {task} in it")
	posted := c.Obligations.NotificationURL
	f.must(posted == "" || isURL(posted), "obligations.notification_url", posted, "a URL")
	c.checkLabels(f)
	c.checkListeners(f, listenKey)
	c.checkIdentity(f)
	c.checkLogin(f)
	c.checkServers(f)
	c.checkLimits(f)
	if n := c.Access.PerMinute; n < 1 || n > calllimit.MaxCalls {
		f.fault("access.requests_per_minute", "must be a whole number from 1 to %d, not %d", calllimit.MaxCalls, n)
	}
	c.checkPublicURLs(f)
	c.checkMappings(f)
	return errors.Join(f.errs...)
}

// checkListeners reports what is wrong with where the gateway listens.
func (c *Config) checkListeners(f *faults, listenKey string) {
	host, _, err := net.SplitHostPort(c.Listen)
	f.must(err == nil, listenKey, c.Listen, "HOST:PORT, such as 127.0.0.1:8090")
	if err == nil && !jwks.IsThisHost(host) {
		if !c.Insecure && (c.TLSCert == "" || c.Identity.Local != nil) {
			f.fault(listenKey, "other hosts can reach %s: it needs tls_cert and tls_key, and no identity.local, or insecure: true", c.Listen)
		}
		f.needs(len(c.Hosts) > 0, "hosts", listenKey, "the names by which other hosts address the gateway, such as [gateway.example.com:8090]")
	}
	admin, _, err := net.SplitHostPort(c.Admin)
	f.must(c.Admin == "" || err == nil && jwks.IsThisHost(admin), "admin_listen", c.Admin, "HOST:PORT that only this host can reach, such as 127.0.0.1:8091")
	f.needs(c.TLSCert == "" || c.TLSKey != "", "tls_key", "tls_cert", "the file of its key")
	f.needs(c.TLSKey == "" || c.TLSCert != "", "tls_cert", "tls_key", "the file of its certificate")
}

// checkIdentity reports what is wrong with who may call.
func (c *Config) checkIdentity(f *faults) {
	local := c.Identity.Local
	f.must(local == nil || local.ID != "", "identity.local.id", "", "the id of who calls from this host")
	f.needs(c.Identity.MTLS == nil || c.TLSCA != "", "tls_client_ca", "identity.mtls", "the file of the authorities of clients' certificates")
	if local == nil || local.ID != "" {
		_, err := newCallers(&c.Identity, nil)
		f.add(yamldoc.Below(err, "identity"))
	}
}

// checkServers reports what is wrong with the servers.
func (c *Config) checkServers(f *faults) {
	if len(c.Servers) == 0 {
		f.fault("servers", "is required: a list of servers, each with a name and a url")
	}
	names, paths := map[string]int{}, map[string]int{}
	for i := range c.Servers {
		s, at := &c.Servers[i], "servers."+strconv.Itoa(i)
		f.must(serverName.MatchString(s.Name), at+".name", s.Name, "a name of a-z, 0-9, _ and -, which begins with a letter or a digit and has 63 characters at most")
		f.must(s.URL == "" || isURL(s.URL), at+".url", s.URL, "the URL of a server, such as http://127.0.0.1:3001/mcp")
		f.must(s.Path == "" || isPath(s.Path), at+".path", s.Path, "a path, such as /files/mcp")
		if fault := s.Arguments.Mode.check(); fault != "" {
			f.fault(at+".arguments", "%s", fault)
		}
		if fault := s.Arguments.Authorization.check(); fault != "" {
			f.fault(at+".tool_authorization", "%s", fault)
		}
		if fault := s.Mode.check(); fault != "" {
			f.fault(at+".mode", "%s", fault)
		}
		for name, file := range s.HeaderFiles {
			f.must(headerName.MatchString(name), at+".header_files."+name, name, "the name of a header")
			f.must(file != "", at+".header_files."+name, "", "the file of the header's value")
		}
		c.checkCredential(f, s, at)
		s.TLS.check(f, s.URL, at)
		s.Run.check(f, s.URL, at)
		if len(s.Run.Command) > 0 && (s.BearerFile != "" || len(s.Header) > 0 || len(s.HeaderFiles) > 0) {
			f.fault(at+".command", "takes no headers: give the program its secrets by env_files")
		}
		if s.Proof && c.PDP.capabilities() == enforce.CapabilitiesUnknown {
			f.fault(at+".proof", "must be false beside pdp.capabilities: false, by which no call can present a capability")
		}
		for n, page := range s.RequestPolicy.Pages {
			f.must(isOrigin(page), at+".pages."+strconv.Itoa(n), page, "an origin, such as https://auth.example.com")
		}
		if first, taken := names[s.Name]; taken {
			f.fault(at+".name", "must be another: servers.%d is called %q, too", first, s.Name)
		} else if first, taken := paths[s.Endpoint()]; taken {
			f.fault(at+".path", "must be another: servers.%d has %s, too", first, s.Endpoint())
		}
		names[s.Name], paths[s.Endpoint()] = i, i
	}
	taken := make(map[string]string)
	for path, i := range paths {
		taken[path] = "servers." + strconv.Itoa(i)
	}
	c.checkEndpoints(f, taken)
}

// checkPublicURLs reports what is wrong with the URLs of endpoints.
func (c *Config) checkPublicURLs(f *faults) {
	callers, err := newCallers(&c.Identity, nil)
	if err != nil {
		return // checkIdentity reports it
	}
	type place struct{ at, public, path string }
	var places []place
	for i := range c.Servers {
		places = append(places, place{"servers." + strconv.Itoa(i), c.Servers[i].PublicURL, c.Servers[i].Endpoint()})
	}
	for i, e := range c.Endpoints {
		places = append(places, place{"endpoints." + strconv.Itoa(i), e.PublicURL, e.Path})
	}
	paths := make(map[string]place)
	for _, p := range places {
		at := p.at + ".public_url"
		if p.public != "" && c.Identity.Resource == "" {
			f.needs(false, "identity.resource", at, "the URL of the gateway as its clients know it")
			continue
		}
		endpoint, err := callers.at(resourceAt(p.public, c.Identity.Resource, p.path))
		if f.add(yamldoc.Below(err, strings.Split(at, ".")...)); err != nil || endpoint.Verifier == nil || endpoint.MetadataPath() == "" {
			continue
		}
		if first, taken := paths[endpoint.MetadataPath()]; taken && (p.public != "" || first.public != "") {
			f.fault(at, "must have another path than that of %s", first.at)
		}
		paths[endpoint.MetadataPath()] = p
	}
}

func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isURL(text) && text == u.Scheme+"://"+u.Host
}

// CheckFiles reports all files named by the settings that cannot be used.
func (c *Config) CheckFiles() error {
	f := new(faults)
	secret := func(path, file string) {
		if _, err := readSecret(file); err != nil {
			f.fault(path, "cannot be used: %v", err)
		}
	}
	secret("pdp.key_file", c.PDP.KeyFile)
	secret("pdp.service_key_file", c.PDP.ServiceKeyFile)
	if c.Identity.Login != nil {
		secret("identity.login.client_secret_file", c.Identity.Login.ClientSecretFile)
	}
	for i, s := range c.Servers {
		secret("servers."+strconv.Itoa(i)+".bearer_file", s.BearerFile)
		for name, file := range s.HeaderFiles {
			secret("servers."+strconv.Itoa(i)+".header_files."+name, file)
		}
		s.TLS.checkFiles(f, "servers."+strconv.Itoa(i))
		s.Run.checkFiles(f, "servers."+strconv.Itoa(i))
		if s.Credential != nil {
			secret("servers."+strconv.Itoa(i)+".credential.client_secret_file", s.Credential.ClientSecretFile)
			secret("servers."+strconv.Itoa(i)+".credential.actor_token_file", s.Credential.ActorTokenFile)
			if _, err := readKey(s.Credential.ClientKeyFile); err != nil {
				f.fault("servers."+strconv.Itoa(i)+".credential.client_key_file", "cannot be used: %v", err)
			}
		}
	}
	if c.TLSCert != "" && c.TLSKey != "" {
		if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
			f.fault("tls_cert", "cannot be used: %v", err)
		}
	}
	if c.TLSCA != "" {
		if _, err := filereload.NewCertPool(c.TLSCA, filereload.Config{}); err != nil {
			f.fault("tls_client_ca", "cannot be used: %v", err)
		}
	}
	if c.Catalog.File != "" {
		if _, err := os.Stat(c.Catalog.File); err != nil {
			f.fault("catalog.accepted_file", "cannot be used: %v", err)
		}
	}
	return errors.Join(f.errs...)
}

// checkMappings reports what is wrong with how the calls to servers are mapped.
func (c *Config) checkMappings(f *faults) {
	for i, s := range c.Servers {
		f.add(yamldoc.Below(coaz.Check(s.Upstream), "servers", strconv.Itoa(i)))
	}
}
