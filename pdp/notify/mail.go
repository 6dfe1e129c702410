package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/wneessen/go-mail"
)

// A mailer sends by SMTP.
type mailer Mail

func (s mailer) send(ctx context.Context, to string, m *Message) error {
	message, err := s.message(to, m)
	if err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	if err := client.DialAndSendWithContext(ctx, message); err != nil {
		return hinted(err)
	}
	return nil
}

// hinted returns an error about TLS with the setting that is about it.
func hinted(err error) error {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: console.notify.mail.ca_file names the certificates that are trusted", err)
	case errors.As(err, &record), strings.Contains(err.Error(), "STARTTLS"): // go-mail has no sentinel for it
		return fmt.Errorf("%w: console.notify.mail.tls is starttls, tls or, for a server on this host, none", err)
	}
	return err
}

// message returns a message in the form of RFC 5322, which no program should answer (RFC 3834).
func (s mailer) message(to string, m *Message) (*mail.Msg, error) {
	if err := CheckAddress(to); err != nil {
		return nil, err
	}
	out := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := errors.Join(out.From(s.From), out.To(to)); err != nil {
		return nil, err
	}
	from := out.GetFrom()[0].Address
	out.SetMessageIDWithValue(m.id(s.Name+" "+to) + "@" + from[strings.LastIndexByte(from, '@')+1:])
	out.SetDate()
	out.Subject(m.title())
	out.SetGenHeader("Auto-Submitted", "auto-generated")
	out.SetBodyString(mail.TypeTextPlain, m.text(noMarkup))
	return out, nil
}

// client returns a client that speaks TLS, unless the settings say that the server is on this host.
func (s mailer) client() (*mail.Client, error) {
	settings := Mail(s)
	host, port, err := settings.address()
	if err != nil {
		return nil, err
	}
	roots, err := settings.trusted()
	if err != nil {
		return nil, err
	}
	options := []mail.Option{
		mail.WithPort(port), mail.WithTimeout(sendTime), mail.WithTLSPolicy(mail.TLSMandatory),
		mail.WithTLSConfig(&tls.Config{ServerName: host, RootCAs: roots, MinVersion: tls.VersionTLS12}),
	}
	switch s.TLS {
	case tlsAlone:
		options = append(options, mail.WithSSL())
	case tlsNone:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if s.Username != "" {
		password, err := readSecret(s.PasswordFile)
		if err != nil {
			return nil, err
		}
		options = append(options, mail.WithSMTPAuth(s.auth()), mail.WithUsername(s.Username), mail.WithPassword(password))
	}
	return mail.NewClient(host, options...)
}

// auth returns the mechanism of authentication. Without TLS it is one for servers on this host.
func (s mailer) auth() mail.SMTPAuthType {
	if s.TLS == tlsNone {
		return mail.SMTPAuthPlainNoEnc
	}
	return mail.SMTPAuthAutoDiscover
}

// trusted returns the certificates that sign the server's, or nil for those of the system.
func (m *Mail) trusted() (*x509.CertPool, error) {
	if m.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(m.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", m.CAFile)
	}
	return pool, nil
}
