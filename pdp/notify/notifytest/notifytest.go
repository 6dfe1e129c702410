// Package notifytest has servers to which tests send notifications.
package notifytest

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Password is the password of every user.
const Password = "correct horse battery staple"

// A MailServer is an SMTP server that keeps what it receives.
type MailServer struct {
	Address string
	CAFile  string // file with its certificate

	// Accepted is called with each message before the server confirms it. If it returns an error, the
	// server refuses the message. It may be nil, and is set before the first message.
	Accepted func(Mail) error

	mu  sync.Mutex
	got []Mail
}

// A Mail is a message as the server got it.
type Mail struct {
	To   []string
	User string // that was authenticated
	TLS  bool
	Text string
}

// Certificate returns a key pair for 127.0.0.1, and the file of its certificate.
func Certificate(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.TLS.Certificates[0], file
}

// ServeMail serves SMTP with STARTTLS, with TLS alone, or with neither.
func ServeMail(t testing.TB, kind string) *MailServer {
	t.Helper()
	cert, ca := Certificate(t)
	m := &MailServer{CAFile: ca}
	s := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &mailSession{server: m, conn: c}, nil
	}))
	s.Domain, s.AllowInsecureAuth = "localhost", kind == "none"
	s.ReadTimeout, s.WriteTimeout = 10*time.Second, 10*time.Second
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.Address = l.Addr().String()
	switch kind {
	case "starttls":
		s.TLSConfig = config
	case "tls":
		l = tls.NewListener(l, config)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return m
}

// Messages returns the messages that the server has accepted.
func (m *MailServer) Messages() []Mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.got)
}

// A mailSession is a connection.
type mailSession struct {
	server *MailServer
	conn   *smtp.Conn
	now    Mail
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, secret string) error {
		if secret != Password {
			return errors.New("wrong password")
		}
		s.now.User = user
		return nil
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.now.To = append(s.now.To, to)
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	_, s.now.TLS = s.conn.TLSConnectionState()
	s.now.Text = string(text)
	s.server.mu.Lock()
	s.server.got = append(s.server.got, s.now)
	s.server.mu.Unlock()
	if s.server.Accepted != nil {
		return s.server.Accepted(s.now)
	}
	return nil
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }
