package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An authority issues certificates.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{T: t}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	return key
}

// issue returns a certificate for a name at 127.0.0.1 and its key, as PEM.
func (a *authority) issue(name string) (cert, key string) {
	own := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, own.Public(), a.key)
	if err != nil {
		a.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.Fatal(err)
	}
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", text)
}

func encodePEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// serve starts a server that takes clients of the authority alone, and tells them
// their names.
func (a *authority) serve() *httptest.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "crm", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Extra.Header.Get("Client-Name")}}}, nil, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Client-Name", r.TLS.PeerCertificates[0].Subject.CommonName+" over "+r.Proto)
		handler.ServeHTTP(w, r)
	}))
	cert, key := a.issue("crm")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		a.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.EnableHTTP2 = true
	s.StartTLS()
	a.Cleanup(s.Close)
	return s
}

// The gateway presents its certificate to a server, and checks that of the server
// against the authorities of that server. It follows the files.
func TestMutualTLSUpstream(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	put := func(name string) {
		cert, key := a.issue(name)
		write(t, filepath.Join(dir, "cert"), cert)
		write(t, filepath.Join(dir, "key"), key)
	}
	put("gateway")
	write(t, filepath.Join(dir, "ca"), encodePEM("CERTIFICATE", a.cert.Raw))
	server := a.serve()
	serve := func(settings string) string {
		return gatewayOf(t, fmt.Sprintf("pdp: {url: %q, timeout: 10s}\nidentity: {local: {type: user, id: alice}}\nservers:\n  - {name: crm, url: %q%s}\n", denies(t, "nothing"), server.URL, settings)) + "/crm/mcp"
	}
	endpoint := serve(fmt.Sprintf(", tls: {cert: %s/cert, key: %s/key, ca: %s/ca}", dir, dir, dir))
	session := connectAs(t, endpoint, "")
	if got := whoami(t, session); got != "gateway over HTTP/2.0" {
		t.Errorf("the server knows the gateway as %s", got)
	}
	put("renewed")
	deadline := time.Now().Add(20 * time.Second)
	for got := ""; !strings.HasPrefix(got, "renewed"); got = whoami(t, session) {
		if time.Now().After(deadline) {
			t.Fatalf("the server knows the gateway as %s", got)
		}
		time.Sleep(100 * time.Millisecond) // the files are looked at once a second
		server.CloseClientConnections()
	}
	for _, settings := range []string{"", fmt.Sprintf(", tls: {ca: %s/ca}", dir), fmt.Sprintf(", tls: {cert: %s/cert, key: %s/key}", dir, dir)} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		if _, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: serve(settings)}, nil); err == nil {
			t.Errorf("%q is enough", settings)
		}
	}
}

// Faults of the settings are reported by their keys.
func TestServerTLSFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	write(t, file, `
pdp: {url: "http://127.0.0.1:1"}
identity: {local: {type: user, id: alice}}
servers:
  - {name: a, url: "http://127.0.0.1:1", tls: {cert: no.pem}}
  - {name: b, url: "https://127.0.0.1:1", tls: {ca: no.pem}}
  - {name: c, url: "https://127.0.0.1:1", tls: {}}
`)
	_, err := readConfig(file, "", true)
	for _, want := range []string{
		"servers.0.tls: needs an https url of the server", "servers.0.tls.key: is required beside servers.0.tls.cert: the file of its key",
		"servers.1.tls.ca: cannot be used: stat no.pem", "servers.2.tls: is empty: name cert and key, or ca",
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q is not reported: %v", want, err)
		}
	}
}
