package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/policy-service/policy-service/conformance/docpage"
)

var (
	aliceOfAcme  = account{"alice", "acme"}
	aliceOfOther = account{"alice", "other"}
	mallory      = account{"mallory", "acme"}
)

// newNotes serves a server that only people with an account at a may use, and that
// tells them who they are, with sessions or without. It names a as its authorization
// server.
func newNotes(t *testing.T, a *accounts, sessions bool) string {
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		of := r.Extra.TokenInfo.Extra["of"].(issued)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: of.account.String() + " may " + of.scope}}}, nil, nil
	})
	var address string
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		of, ok := a.holder(token, address+"/mcp")
		if !ok {
			return nil, fmt.Errorf("%w: unknown", auth.ErrInvalidToken)
		}
		return &auth.TokenInfo{Expiration: time.Now().Add(time.Hour), Extra: map[string]any{"of": of}, UserID: of.account.String()}, nil
	}
	routes := http.NewServeMux()
	routes.Handle("/mcp", auth.RequireBearerToken(verify, nil)(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: !sessions})))
	routes.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		a.reply(w, http.StatusOK, map[string]any{"resource": address + "/mcp", "authorization_servers": []string{a.url}})
	})
	s := httptest.NewServer(routes)
	t.Cleanup(s.Close)
	address = s.URL
	return address + "/mcp"
}

// A grantsGateway is a gateway before the server notes, which may be restarted.
type grantsGateway struct {
	*testing.T
	*accounts
	base, file, state string
	command           *exec.Cmd
	log               *logFile
}

// A logFile has the log of a gateway.
type logFile struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logFile) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newGrantsGateway(t *testing.T, a *accounts, notes, credential string) *grantsGateway {
	t.Helper()
	return newGrantsGatewayOf(t, a, notes, credential, denies(t, "nothing is denied"))
}

// newGrantsGatewayOf returns the gateway of a PDP.
func newGrantsGatewayOf(t *testing.T, a *accounts, notes, credential, pdp string) *grantsGateway {
	t.Helper()
	dir := t.TempDir()
	address := docpage.FreeAddress(t)
	if a.clientKey != nil {
		write(t, filepath.Join(dir, "key.pem"), a.keyFile)
	}
	g := &grantsGateway{T: t, accounts: a, base: "http://" + address, file: filepath.Join(dir, "gateway.yaml"), state: filepath.Join(dir, "state"), log: new(logFile)}
	write(t, filepath.Join(dir, "secret"), "sesame\n")
	write(t, filepath.Join(dir, "open"), "open\n")
	write(t, g.file, strings.NewReplacer("DIR", dir, "BASE", g.base, "ADDRESS", address, "ISSUER", a.url, "KEYS", a.keys.URL, "NOTES", notes, "PDP", pdp).Replace(`
listen: ADDRESS
state: DIR/state
pdp: {url: "PDP", timeout: 10s}
identity:
  resource: BASE
  issuers: [{issuer: "ISSUER", jwks_url: "KEYS", tenant_claim: org}]
  login: {client_id: login, client_secret_file: DIR/open}
servers:
  - name: notes
    url: NOTES
    credential: {type: oauth, `+credential+`}
`))
	g.start()
	return g
}

func (g *grantsGateway) start() {
	g.Helper()
	g.command = exec.Command("mcp-gateway", "serve", "--config", g.file)
	g.command.Stderr = g.log
	before := strings.Count(g.log.String(), "listening on")
	if err := g.command.Start(); err != nil {
		g.T.Fatal(err)
	}
	command := g.command
	g.T.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for until := time.Now().Add(30 * time.Second); strings.Count(g.log.String(), "listening on") == before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) || strings.Contains(g.log.String(), "mcp-gateway: ") {
			g.T.Fatal(g.log)
		}
	}
}

func (g *grantsGateway) restart() {
	g.Helper()
	if err := g.command.Process.Signal(syscall.SIGTERM); err != nil {
		g.T.Fatal(err)
	}
	_ = g.command.Wait()
	g.start()
}

// caller returns the token of a caller at the gateway.
func (g *grantsGateway) caller(who account) string {
	return g.sign(who, g.base+"/notes/mcp", "")
}

// connect begins a session, in the older era unless the client is of the newer one.
func (g *grantsGateway) connect(who account, version string, elicit func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)) (*mcp.ClientSession, error) {
	g.Helper()
	options := &mcp.ClientOptions{ElicitationHandler: elicit}
	if elicit != nil {
		options.Capabilities = &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}}
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(g.T.Context(),
		&mcp.StreamableClientTransport{Endpoint: g.base + "/notes/mcp", HTTPClient: httpClientOf(g.caller(who))}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		g.T.Cleanup(func() { s.Close() })
	}
	return s, err
}

// neverElicits is for a client whose host shows pages itself.
func neverElicits(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return nil, errors.New("unexpected")
}

// pageOf returns the page in the error with which versions with sessions lead people
// to it.
func pageOf(t *testing.T, err error) string {
	t.Helper()
	var refused *jsonrpc.Error
	var data struct {
		Reason       string              `json:"reason_code"`
		Elicitations []*mcp.ElicitParams `json:"elicitations"`
	}
	if !errors.As(err, &refused) || refused.Code != mcp.CodeURLElicitationRequired || json.Unmarshal(refused.Data, &data) != nil ||
		data.Reason != "upstream_login" || len(data.Elicitations) != 1 || data.Elicitations[0].Mode != "url" || data.Elicitations[0].ElicitationID == "" {
		t.Fatalf("no page: %v", err)
	}
	return data.Elicitations[0].URL
}

// link returns the page that a caller is led to.
func (g *grantsGateway) link(who account) string {
	g.Helper()
	_, err := g.connect(who, "2025-11-25", neverElicits)
	return pageOf(g.T, err)
}

// granted returns a session of a caller who has let the gateway act for them.
func (g *grantsGateway) granted(who account, version string, elicit func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error)) *mcp.ClientSession {
	g.Helper()
	newBrowser(g.T, who).grant(g.link(who))
	s, err := g.connect(who, version, elicit)
	if err != nil {
		g.T.Fatal(err)
	}
	return s
}

const withSecret = "client_id: gateway, issuer: ISSUER, client_secret_file: DIR/secret, scopes: [read, write]"

// Callers reach a server in their own names after each has logged in there, also after
// a restart of the gateway and with refresh tokens that are good once. No token is in
// clear in a file or in the log.
func TestCallersLogInUpstream(t *testing.T) {
	a := newAccounts(t)
	g := newGrantsGateway(t, a, newNotes(t, a, true), withSecret)
	callers := []account{aliceOfAcme, aliceOfOther, {"bob", "acme"}}
	calls := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, who := range callers {
			s, err := g.connect(who, "2025-11-25", neverElicits)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				all.Go(func() {
					if got := whoami(t, s); got != who.String()+" may read write" {
						t.Errorf("%s: %s", who, got)
					}
				})
			}
		}
		all.Wait()
	}
	var all sync.WaitGroup
	for _, who := range callers {
		link := g.link(who)
		all.Go(func() { newBrowser(t, who).grant(link) })
	}
	all.Wait()
	calls()
	g.restart()
	calls()
	for n := range 3 {
		a.expire(false)
		calls()
		if a.renewed != 3*(n+1) {
			t.Errorf("%d tokens were renewed, want %d", a.renewed, 3*(n+1))
		}
	}
	if a.grants != 3 {
		t.Errorf("three people have granted %d times", a.grants)
	}
	g.secretive()
}

var secrets = regexp.MustCompile(`[ar]t-[A-Z2-7]{26}`)

// secretive reports tokens in the files and in the log of the gateway.
func (g *grantsGateway) secretive() {
	g.Helper()
	if found := secrets.FindString(g.log.String()); found != "" || strings.Contains(g.log.String(), "ticket=") {
		g.T.Errorf("the log has %s", found)
	}
	err := filepath.WalkDir(g.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if found := secrets.Find(text); found != nil {
			g.T.Errorf("%s has %s", path, found)
		}
		return err
	})
	if err != nil {
		g.T.Error(err)
	}
}

// A client that shows pages leads its person to one when the grant has ended, and the
// call goes on: by a request for input, or by the error of versions with sessions.
// Others get the address as the result of the tool.
func TestLoginDuringCall(t *testing.T) {
	a := newAccounts(t)
	g := newGrantsGateway(t, a, newNotes(t, a, false), withSecret)
	older := newGrantsGateway(t, a, newNotes(t, a, true), withSecret)
	const want = "alice of acme may read write"
	shown := 0
	newer := g.granted(aliceOfAcme, "", func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		shown++
		go newBrowser(t, aliceOfAcme).grant(r.Params.URL) // the call waits for it
		return &mcp.ElicitResult{Action: "accept"}, nil
	})
	if got := whoami(t, newer); got != want || shown != 0 {
		t.Fatalf("%s, shown %d times", got, shown)
	}
	a.expire(true)
	if got := whoami(t, newer); got != want || shown != 1 {
		t.Errorf("2026-07-28: %s, shown %d times", got, shown)
	}
	session := older.granted(aliceOfAcme, "2025-11-25", neverElicits)
	a.expire(true)
	_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
	newBrowser(t, aliceOfAcme).grant(pageOf(t, err))
	if got := whoami(t, session); got != want {
		t.Errorf("2025-11-25: %s", got)
	}
	newBrowser(t, aliceOfAcme).grant(g.link(aliceOfAcme))
	for _, version := range []string{"", "2025-11-25"} {
		plain, err := g.connect(aliceOfAcme, version, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.expire(true)
		result, err := plain.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
		if err != nil || !result.IsError {
			t.Fatalf("version %q: %+v, %v", version, result, err)
		}
		_, link, _ := strings.Cut(result.Content[0].(*mcp.TextContent).Text, "call again: ")
		newBrowser(t, aliceOfAcme).grant(link)
		if got := whoami(t, plain); got != want {
			t.Errorf("version %q: %s", version, got)
		}
	}
	g.secretive()
}

// Nobody completes what another person has begun, and nothing is completed twice.
func TestLoginIsOfTheCaller(t *testing.T) {
	a := newAccounts(t)
	g := newGrantsGateway(t, a, newNotes(t, a, true), withSecret)
	refused := func(name string, status int, text, want string) {
		t.Helper()
		if status < 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", name, status, text)
		}
		if a.grants != 0 {
			t.Fatalf("%s: there is a grant", name)
		}
	}
	victim := newBrowser(t, aliceOfAcme)
	status, text := victim.open(g.link(mallory))
	refused("the victim opens the attacker's address", status, text, "this address is for another person")
	status, text = newBrowser(t, aliceOfOther).open(g.link(aliceOfAcme))
	refused("the same name in another tenant", status, text, "this address is for another person")

	attacker := newBrowser(t, mallory)
	attacker.stop = "/oauth/callback"
	ticket := g.link(mallory)
	_, callback := attacker.open(ticket)
	status, text = victim.visit(callback)
	refused("the victim completes the attacker's", status, text, "this is not the browser")
	status, text = victim.open(ticket)
	refused("the victim begins it, too", status, text, "this address is for another person")
	status, text = victim.visit(callback)
	refused("and completes the attacker's then", status, text, "this is not the browser")
	_, foreign := attacker.open(g.link(mallory))
	state := regexp.MustCompile(`state=[^&]+`)
	status, text = attacker.visit(state.ReplaceAllString(callback, "state=x"+strings.TrimPrefix(state.FindString(foreign), "state=")))
	refused("a changed state", status, text, "has expired or is not one of this gateway")
	attacker.stop = "/oauth/login"
	_, login := attacker.open(g.link(mallory))
	status, text = attacker.visit(state.ReplaceAllString(callback, state.FindString(login)))
	refused("the state of a login", status, text, "has expired or is not one of this gateway")
	status, text = victim.visit(login)
	refused("the victim logs in for the attacker", status, text, "this is not the browser")

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.base+"/oauth/start", strings.NewReader("ticket=x"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", "https://evil.example")
	status, text = victim.read(victim.Do(request))
	refused("the page of another site", status, text, "this host or origin is not served")

	a.names = "https://evil.example"
	mixed := newBrowser(t, mallory)
	status, text = mixed.open(g.link(mallory))
	refused("another authorization server", status, text, "did not get what you have granted")
	a.names = ""

	g.restart()
	if status, text = attacker.visit(callback); status != http.StatusOK || a.grants != 1 {
		t.Fatalf("the control, after a restart: %d %s", status, text)
	}
	if status, text = attacker.visit(callback); status != http.StatusBadRequest || a.grants != 1 {
		t.Errorf("a replayed answer: %d %s", status, text)
	}
	pageOf(t, func() error { _, err := g.connect(aliceOfAcme, "2025-11-25", neverElicits); return err }())
	g.secretive()
}

// A token that the server refuses although it was just renewed ends the grant: it is
// revoked, and the person is asked.
func TestRefusedGrantIsRevoked(t *testing.T) {
	a := newAccounts(t)
	notes := newNotes(t, a, true)
	var broken atomic.Bool
	to, err := url.Parse(notes)
	if err != nil {
		t.Fatal(err)
	}
	passes := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL = to }, FlushInterval: -1}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		passes.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	g := newGrantsGateway(t, a, front.URL, withSecret+", resource: "+notes)
	s := g.granted(aliceOfAcme, "2025-11-25", neverElicits)
	broken.Store(true)
	_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
	page := pageOf(t, err)
	if a.renewed != 1 || a.revoked != 1 {
		t.Errorf("renewed %d times, revoked %d times", a.renewed, a.revoked)
	}
	broken.Store(false)
	newBrowser(t, aliceOfAcme).grant(page)
	if got := whoami(t, s); got != "alice of acme may read write" {
		t.Error(got)
	}
}

// A client with a key authenticates by assertions, one without any by its id. The
// authorization server is the configured one or, for a client without a secret, the
// one that the server names.
func TestClientsOfAuthorizationServers(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, credential string
		prepare          func(*accounts)
	}{
		{"a key", "client_id: gateway, issuer: ISSUER, client_auth: private_key_jwt, client_key_file: DIR/key.pem", func(a *accounts) {
			a.clientKey, a.keyFile = key.Public(), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
		}},
		{"not registered and discovered", "scopes: []", func(a *accounts) { a.public = true }},
		{"endpoints", `client_id: gateway, issuer: ISSUER, authorization_url: "ISSUER/authorize", token_url: "ISSUER/token", client_auth: post, client_secret_file: DIR/secret`, func(a *accounts) { a.public = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAccounts(t)
			test.prepare(a)
			g := newGrantsGateway(t, a, newNotes(t, a, true), strings.Replace(test.credential, "scopes: []", "scopes: [read]", 1))
			s := g.granted(aliceOfAcme, "2025-11-25", neverElicits)
			a.expire(false)
			if got := whoami(t, s); !strings.HasPrefix(got, "alice of acme") || a.renewed != 1 {
				t.Errorf("%s, renewed %d times", got, a.renewed)
			}
		})
	}
}

// Faults of logins are reported before the start.
func TestLoginFaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	faults := func(config string) string {
		write(t, file, config)
		_, err := readConfig(file, "", true)
		return strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(err), file+":", ""), dir, "DIR")
	}
	const server = `
servers: [{name: notes, url: "https://notes.example.com/mcp", path: /oauth/start, credential: {type: oauth, client_id: g, client_secret_file: none, audience: a, authorization_url: "https://a.example"}}]
`
	for config, wants := range map[string][]string{
		`
pdp: {url: "http://127.0.0.1:1"}
identity:
  resource: https://gateway.example.com
  issuers: [{issuer: "https://auth.example.com", jwks_url: "https://auth.example.com/keys"}]
` + server: {
			"identity.login: is required beside servers.0.credential.type: the login of callers, so that nobody grants access for another person",
			"servers.0.credential.audience: is not for the type oauth: name the server by resource",
			"servers.0.credential.authorization_url: and token_url are required together, or neither",
			"servers.0.credential.client_secret_file: cannot be used",
			"servers.0.path: must be another: /oauth/start is a page of the gateway",
		},
		`
pdp: {url: "http://127.0.0.1:1"}
identity:
  resource: https://gateway.example.com
  issuers: [{issuer: "https://auth.example.com", jwks_url: "https://auth.example.com/keys"}]
  login: {issuer: "https://other.example.com", client_secret_file: none, token_url: "http://other.example.com/token"}
  local: {type: user, id: alice}
insecure: true
servers: [{name: notes, url: "https://notes.example.com/mcp", credential: {type: oauth, client_id: g, client_auth: private_key_jwt, client_key_file: gateway.yaml}}]
`: {
			"identity.login.client_id: is required",
			`identity.login.token_url: must be an https URL, not "http://other.example.com/token"`,
			"identity.login.authorization_url: is required: it must be the URL of that endpoint, or neither is there",
			"servers.0.credential.type: oauth is not possible with insecure and identity.local: everybody would be the same person",
			`identity.login.issuer: must be one of identity.issuers, not "https://other.example.com"`,
			"identity.login.client_secret_file: cannot be used",
			"servers.0.credential.issuer: is required for a client with a secret or a key: the authorization server that may get them",
			"servers.0.credential.client_key_file: cannot be used: open gateway.yaml",
		},
		`
pdp: {url: "http://127.0.0.1:1"}
insecure: true
identity: {local: {type: user, id: alice}}
servers: [{name: notes, url: "https://notes.example.com/mcp", credential: {type: oauth}}]
`: {"identity.resource: is required beside servers.0.credential.type: an https URL of the gateway, at which the authorization server reads its metadata, or configure credential.client_id",
			"servers.0.credential.type: oauth is not possible with insecure and identity.local: everybody would be the same person"},
		`
pdp: {url: "http://127.0.0.1:1"}
identity: {process: {type: user, id: alice}}
servers: [{name: notes, url: "https://notes.example.com/mcp", credential: {type: oauth, client_id: g}}]
`: {"servers.0.credential.type: oauth needs callers who can log in: configure identity.issuers and identity.login, or identity.local"},
	} {
		got := faults(config)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not reported:\n%s", want, got)
			}
		}
	}
}

// A permit narrows the token of its call by a refresh with fewer scopes, once for each
// set of them. The refresh token and the token of other calls stay as they are. A call
// whose token cannot be narrowed is refused.
func TestPermitNarrowsGrant(t *testing.T) {
	a := newAccounts(t)
	pdp := newObliging(t)
	g := newGrantsGatewayOf(t, a, newNotes(t, a, true), withSecret, pdp.url)
	s := g.granted(aliceOfAcme, "2025-11-25", neverElicits)
	for _, test := range []struct {
		scopes, want string
		renewed      int
	}{
		{"", "alice of acme may read write", 0},
		{`"read"`, "alice of acme may read", 1},
		{`"read"`, "alice of acme may read", 1},
		{`"write","read"`, "alice of acme may read write", 1},
		{`"admin"`, "an obligation of the permit could not be carried out", 1},
		{`"read","admin"`, "an obligation of the permit could not be carried out", 1},
		{"", "alice of acme may read write", 1},
		{`"write"`, "alice of acme may write", 2},
	} {
		pdp.narrow(test.scopes)
		if got := whoami(t, s); !strings.Contains(got, test.want) || a.renewed != test.renewed {
			t.Errorf("scopes [%s]: %s, renewed %d times", test.scopes, got, a.renewed)
		}
	}
	pdp.narrow("")
	a.expire(false)
	if got := whoami(t, s); got != "alice of acme may read write" || a.grants != 1 {
		t.Errorf("later: %s, %d grants", got, a.grants)
	}
}

// At an endpoint over several servers, a server without a grant keeps none of the
// others from answering. A call of its tool leads to the page, and the call after the
// login reaches it in the same session.
func TestLoginAtUnion(t *testing.T) {
	a := newAccounts(t)
	desk := sdkServer(t, true, func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "ring"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "rung"}}}, nil, nil
		})
	})
	g := newGrantsGatewayOf(t, a, newNotes(t, a, true), withSecret+`}
  - {name: desk, url: "`+desk+`"}
endpoints:
  - {path: /all/mcp, servers: [notes, desk]`, deniesAll(t))
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: neverElicits, Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
	})
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: g.base + "/all/mcp", HTTPClient: httpClientOf(g.sign(aliceOfAcme, g.base+"/all/mcp", ""))}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	call := func(tool string) (string, error) {
		result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
		if err != nil {
			return "", err
		}
		return result.Content[0].(*mcp.TextContent).Text, nil
	}
	if tools, err := s.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 1 {
		t.Errorf("before the login: %+v, %v", tools, err)
	}
	if got, err := call("desk__ring"); got != "rung" {
		t.Errorf("%s, %v", got, err)
	}
	_, err = call("notes__whoami")
	newBrowser(t, aliceOfAcme).grant(pageOf(t, err))
	if got, err := call("notes__whoami"); got != "alice of acme may read write" {
		t.Errorf("%s, %v", got, err)
	}
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 2 {
		t.Errorf("%+v, %v", tools, err)
	}
}
