package setup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/policy-service/policy-service/cmd/internal/environment"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/clientconfig"
	"github.com/policy-service/policy-service/pdp/jwks"
)

// A Config says what to set up.
type Config struct {
	Dir     string   // of the gateway's configuration and policies; absolute
	Files   []string // of clients; nil means those that are found
	Program string   // path of mcp-gateway
	PDP     string   // URL
	Listen  string   // HOST:PORT of the endpoints
	User    string   // id of the caller
	// Include names HTTP servers that a client may have to log in to.
	Include []string
	Read    Read
}

// A Read reads and checks the text of a configuration of the gateway.
type Read func(file string, text []byte) (*Gateway, error)

// A Gateway is what a plan needs to know of a configuration of the gateway.
type Gateway struct {
	Listen    string
	Endpoints map[string]string // paths, by server
	Observes  bool              // servers that say nothing about it are in observe mode
}

// Names of files in [Config.Dir].
const (
	configFile  = "mcp-gateway.yaml"
	policiesDir = "policies"
	secretsDir  = "secrets"
)

// A Plan is what would be written, or has been.
type Plan struct {
	cfg     Config
	clients []*client
	gateway *Gateway          // of the configuration that exists, or nil
	text    []byte            // of it
	names   map[string]string // of the servers of the gateway, by what they are
	taken   map[string]bool
	added   []addedServer
	secrets map[string]string // by file
}

// A client is a file of one.
type client struct {
	place
	file     *clientconfig.File
	original []byte
	masked   []byte // original, as it may be shown
	outcomes []outcome
}

// An outcome says what becomes of a server of a client.
type outcome struct {
	*clientconfig.Server
	text    string
	changed bool
}

// An addedServer is a new server of the gateway.
type addedServer struct {
	name, url string
	bearer    string            // file
	headers   map[string]string // files, by name
}

// New makes a plan. It writes nothing.
func New(cfg Config) (*Plan, error) {
	if strings.ContainsFunc(cfg.User, func(r rune) bool { return !unicode.IsPrint(r) }) || cfg.User == "" {
		return nil, fmt.Errorf("the id of the caller must be printable text, not %q", cfg.User)
	}
	p := &Plan{cfg: cfg, names: make(map[string]string), taken: make(map[string]bool), secrets: make(map[string]string)}
	if err := p.readGateway(); err != nil {
		return nil, err
	}
	if err := p.readClients(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Plan) path(parts ...string) string {
	return filepath.Join(append([]string{p.cfg.Dir}, parts...)...)
}

// readGateway reads the configuration of the gateway, if there is one.
func (p *Plan) readGateway() error {
	text, err := os.ReadFile(p.path(configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if p.gateway, err = p.cfg.Read(p.path(configFile), text); err != nil {
		return err
	}
	p.text, p.cfg.Listen = text, p.gateway.Listen
	for name := range p.gateway.Endpoints {
		p.taken[name] = true
	}
	return nil
}

// readClients reads all files, and reports all faults of them.
func (p *Plan) readClients() error {
	found, err := discover()
	if err != nil {
		return err
	}
	if p.cfg.Files != nil {
		found, err = named(p.cfg.Files, found)
	}
	for _, place := range found {
		text, readErr := os.ReadFile(place.path)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		file, parseErr := clientconfig.Parse(place.path, text)
		err = errors.Join(err, parseErr)
		if parseErr == nil {
			p.clients = append(p.clients, &client{place: place, file: file, original: text, masked: file.Masked()})
		}
	}
	return err
}

// named returns the places of files that are named.
func named(files []string, known []place) (all []place, err error) {
	for _, name := range files {
		path, absErr := filepath.Abs(name)
		err = errors.Join(err, absErr)
		at := slices.IndexFunc(known, func(k place) bool { return k.path == path })
		if at < 0 {
			all = append(all, place{path: path})
			continue
		}
		all = append(all, known[at])
	}
	return all, err
}

// Guard changes the plan such that the gateway guards the servers.
func (p *Plan) Guard() error {
	if err := p.checkIncluded(); err != nil {
		return err
	}
	for _, c := range p.clients {
		for _, s := range c.file.Servers {
			if g := guardOf(s); g != nil && g.config == p.path(configFile) {
				p.know(g, s)
			}
		}
	}
	for _, c := range p.clients {
		for _, s := range c.file.Servers {
			text, changed, err := p.guard(s)
			if err != nil {
				return err
			}
			c.outcomes = append(c.outcomes, outcome{s, text, changed})
		}
	}
	return p.check()
}

// checkIncluded refuses a name of [Config.Include] that no server has.
func (p *Plan) checkIncluded() error {
	var names []string
	for _, c := range p.clients {
		for _, s := range c.file.Servers {
			names = append(names, s.Name)
		}
	}
	for _, name := range p.cfg.Include {
		if !slices.Contains(names, name) {
			return fmt.Errorf("no client has the server %q of --include%s", name, environment.Meant(name, names))
		}
	}
	return nil
}

// know takes over the name of a server that is guarded. A configuration that lacks
// it gets it back.
func (p *Plan) know(g *guard, s *clientconfig.Server) {
	p.names[g.identity(s)] = g.name
	if !p.taken[g.name] {
		p.taken[g.name] = true
		p.added = append(p.added, addedServer{name: g.name})
	}
}

// guard changes an entry, and says what has become of it.
func (p *Plan) guard(s *clientconfig.Server) (text string, changed bool, err error) {
	if g := guardOf(s); g != nil {
		if g.config != p.path(configFile) {
			return "left as it is: the gateway of " + g.config + " guards it", false, nil
		}
		return "is guarded as " + g.name, false, nil
	}
	if name := p.endpointOf(s); name != "" {
		return "is guarded as " + name, false, nil
	}
	if reason := p.reasonAgainst(s); reason != "" {
		return "left as it is: " + reason, false, nil
	}
	if s.Command != "" {
		name := p.name(s, addedServer{})
		s.Wrap(p.cfg.Program, "stdio", "--config", p.path(configFile), "--server", name, "--")
		return "guarded as " + name, true, nil
	}
	return p.guardHTTP(s)
}

// reasonAgainst says why an entry is left as it is, or "".
func (p *Plan) reasonAgainst(s *clientconfig.Server) string {
	if s.Unsupported != "" || s.Command != "" {
		return s.Unsupported
	}
	u, err := url.Parse(s.URL)
	switch {
	case clientconfig.UsesVariable(s.URL):
		return "its URL has a variable of the client"
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil:
		return "its URL is not one that the gateway takes: it needs http or https, a host, and no password"
	}
	if u.Host == p.cfg.Listen {
		return "its URL is at the address of the gateway, which has no such endpoint"
	}
	for _, h := range s.Headers {
		switch {
		case clientconfig.UsesVariable(h.Value):
			return "its header " + h.Name + " has a variable of the client: write its value there, or add the server to the gateway by hand"
		case strings.TrimSpace(h.Value) == "" || strings.ContainsAny(h.Value, "\r\n"):
			return "its header " + h.Name + " has no value of one line"
		}
	}
	mayLogIn := s.OAuth || len(s.Headers) == 0 && !jwks.IsThisHost(u.Hostname())
	if mayLogIn && !slices.Contains(p.cfg.Include, s.Name) {
		return "the client may log in to it with OAuth, and the gateway passes on no credentials of clients: add --include " + s.Name + " if it needs no login"
	}
	return ""
}

// guardHTTP points an entry to the gateway, and moves its headers to files.
func (p *Plan) guardHTTP(s *clientconfig.Server) (string, bool, error) {
	if strings.HasSuffix(p.cfg.Listen, ":0") {
		return "", false, fmt.Errorf("%s: listen: clients need a port that stays the same, not %s", p.path(configFile), p.cfg.Listen)
	}
	added := addedServer{url: s.URL, headers: make(map[string]string)}
	count := len(s.Headers)
	headers := s.Headers
	name := p.name(s, added)
	if at := slices.IndexFunc(p.added, func(a addedServer) bool { return a.name == name }); at >= 0 {
		for _, h := range headers {
			p.secret(&p.added[at], h)
		}
	}
	endpoint := "http://" + p.cfg.Listen + "/" + name + "/mcp"
	s.Point(endpoint)
	text := "guarded at " + endpoint
	if count > 0 {
		text += fmt.Sprintf("; %d of its headers move to %s", count, p.path(secretsDir))
	}
	return text, true, nil
}

// secret moves a header to a file.
func (p *Plan) secret(s *addedServer, h clientconfig.Header) {
	base := p.path(secretsDir, s.name+"."+nameOf(h.Name))
	file, value := base, h.Value
	for n := 2; p.secrets[file] != ""; n++ { // names may differ by other characters alone
		file = fmt.Sprintf("%s-%d", base, n)
	}
	token, isBearer := cutFold(value, "Bearer ")
	if isBearer && strings.EqualFold(h.Name, "Authorization") {
		s.bearer, value = file, strings.TrimSpace(token)
	} else {
		s.headers[h.Name] = file
	}
	p.secrets[file] = value
}

func cutFold(text, prefix string) (string, bool) {
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return text, false
	}
	return text[len(prefix):], true
}

// name returns the name of a server at the gateway: the client's, in the form that
// the gateway permits, and with a number if another server has it.
func (p *Plan) name(s *clientconfig.Server, added addedServer) string {
	identity := identityOf(s)
	if name := p.names[identity]; name != "" {
		return name
	}
	base := nameOf(s.Name)
	name := base
	for n := 2; p.taken[name]; n++ {
		suffix := fmt.Sprintf("-%d", n)
		name = base[:min(len(base), maxName-len(suffix))] + suffix
	}
	p.names[identity], p.taken[name] = name, true
	added.name = name
	p.added = append(p.added, added)
	return name
}

const maxName = 63

// others are the characters of which a name at the gateway has none.
var others = regexp.MustCompile(`[^a-z0-9_-]+`)

// nameOf returns a name in the form that the gateway permits: in lower case, with -
// for other characters, and with a letter or a digit first.
func nameOf(name string) string {
	safe := strings.TrimLeft(others.ReplaceAllString(strings.ToLower(name), "-"), "-_")
	return cmp.Or(strings.TrimRight(safe[:min(len(safe), maxName)], "-"), "server")
}

// identityOf tells servers apart: two entries with the same identity are one server
// of the gateway.
func identityOf(s *clientconfig.Server) string {
	if s.Command != "" {
		return fmt.Sprintf("%q %q %s", s.Command, s.Args, s.Known)
	}
	return fmt.Sprintf("%q %q", s.URL, s.Headers)
}

// A guard is the command by which a gateway runs a server.
type guard struct {
	config, name string
	command      []string
}

// guardOf returns the guard of a server, or nil.
func guardOf(s *clientconfig.Server) *guard {
	if len(s.Args) == 0 || s.Args[0] != "stdio" {
		return nil
	}
	if len(s.Args) > 6 && s.Args[1] == "--config" && s.Args[3] == "--server" && s.Args[5] == "--" {
		return &guard{s.Args[2], s.Args[4], s.Args[6:]}
	}
	if strings.TrimSuffix(filepath.Base(filepath.FromSlash(s.Command)), ".exe") == "mcp-gateway" {
		return &guard{config: "another configuration"}
	}
	return nil
}

// identity returns that of the server before it was guarded.
func (g *guard) identity(s *clientconfig.Server) string {
	return identityOf(&clientconfig.Server{Command: g.command[0], Args: g.command[1:], Known: s.Known})
}

// endpointOf returns the server of the gateway to whose endpoint an entry points,
// or "".
func (p *Plan) endpointOf(s *clientconfig.Server) string {
	if p.gateway == nil || s.URL == "" {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(p.gateway.Endpoints)) {
		if s.URL == "http://"+p.gateway.Listen+p.gateway.Endpoints[name] {
			return name
		}
	}
	return ""
}

// isGuarded reports whether an entry uses the gateway of the plan.
func (p *Plan) isGuarded(s *clientconfig.Server) bool {
	g := guardOf(s)
	return g != nil && g.config == p.path(configFile) || p.endpointOf(s) != ""
}
