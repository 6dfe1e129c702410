package console_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/policy-service/policy-service/conformance/docpage"
)

// certificate writes a certificate and its key. Browsers of tests ask for none that they trust.
func certificate(t testing.TB) (cert, key string) {
	t.Helper()
	donor := httptest.NewTLSServer(nil)
	defer donor.Close()
	pair := donor.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// cookies returns the cookies that the browser sends to a URL, by name.
func (b *browser) cookies(url string) map[string]*network.Cookie {
	b.Helper()
	all := make(map[string]*network.Cookie)
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		found, err := network.GetCookies().WithURLs([]string{url}).Do(ctx)
		for _, one := range found {
			all[one.Name] = one
		}
		return err
	}))
	return all
}

// Over TLS, the cookie of a session is sent to the console alone, no script reads it, and no other host of the same
// domain sets it.
func TestSessionCookieOverTLS(t *testing.T) {
	cert, key := certificate(t)
	address := docpage.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	base := "https://console.corp.example:" + port
	c := newCampusAt(t, approvalStore, address, base, []string{"--console.tls-cert", cert, "--console.tls-key", key})
	b := open(t, c.console, look{})
	sibling := plantCookies(t)
	b.visit(sibling)
	if got := b.cookies(base); got["planted"] == nil || len(got) != 1 { // the control: others are sent
		t.Errorf("another host of the domain set %v", got)
	}
	c.enter(b, "u-carol", "/requests")
	session := b.cookies(base)["__Host-session"]
	if session == nil || !session.Secure || !session.HTTPOnly || session.SameSite != network.CookieSameSiteLax || session.Domain != "console.corp.example" || session.Path != "/" || !session.Session {
		t.Fatalf("the cookie is %+v", session)
	}
	if seen := eval[string](b, "document.cookie"); seen != "planted=yes" {
		t.Errorf("scripts read %q", seen)
	}
	b.visit(sibling)
	if got := b.cookies(base); got["__Host-session"] == nil || got["__Host-session"].Value != session.Value {
		t.Error("another host of the domain replaced the session")
	}
	if got := b.cookies(sibling)["__Host-session"]; got == nil || got.Value != "planted" { // its own, by that name
		t.Errorf("its own cookie is %+v", got)
	}
	task := c.asked("call", "alice", ordinary)
	b.visit("/requests/" + task)
	b.approve("u-carol")
	b.sees("You approved this")
	if next := b.cookies(base)["__Host-session"]; next == nil || next.Value == session.Value {
		t.Error("signing in again did not change the id of the session")
	}
}

// plantCookies serves a page of another host in the domain of the console, which sets cookies for the domain.
func plantCookies(t testing.TB) (url string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, cookie := range []string{
			"planted=yes; Path=/; Secure; Domain=corp.example",
			"__Host-session=planted; Path=/; Secure; Domain=corp.example", "__Host-session=planted; Path=/; Secure",
			"__Host-browser=planted; Path=/; Secure; Domain=corp.example",
		} {
			w.Header().Add("Set-Cookie", cookie)
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!DOCTYPE html><html lang="en"><title>Intranet</title><p>Lunch</p></html>`))
	}))
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "127.0.0.1", "lunch.corp.example", 1) + "/"
}
