package pdp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A syslog is a server for messages as defined by RFC 5424: udp://HOST (RFC 5426), tcp://HOST (RFC
// 6587, octet counting), tls://HOST (RFC 5425), or unix:///PATH on this host. Each message uses a
// new connection. The server acknowledges nothing.
type syslog struct {
	scheme, address string
	host            string      // name of this host in messages
	tls             *tls.Config // for the scheme tls
}

// syslogPorts are the default ports.
var syslogPorts = map[string]string{"udp": "514", "tcp": "601", "tls": "6514"}

// newSyslog parses the URL of a server.
func newSyslog(address string) (*syslog, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("syslog server: %w", err)
	}
	s := &syslog{scheme: u.Scheme, address: u.Host, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	port, known := syslogPorts[u.Scheme]
	switch {
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		s.address = u.Path
	case !known || u.Hostname() == "" || u.Path != "" || u.RawQuery != "":
		return nil, fmt.Errorf("%q is no syslog server: want udp://, tcp:// or tls:// and a host, or unix:// and a path", address)
	case u.Port() == "":
		s.address = net.JoinHostPort(u.Hostname(), port)
	}
	if s.host, err = os.Hostname(); err != nil {
		s.host = "-"
	}
	return s, nil
}

// priority is facility 13, log audit, with severity 6, informational.
const priority = 13<<3 | 6

// send is a [sink]. The message is the line of the file to which checkpoints are appended.
func (s *syslog) send(ctx context.Context, c *decisionlog.Checkpoint) error {
	now := time.Now().UTC()
	text, err := json.Marshal(keptCheckpoint{now, *c})
	if err != nil {
		return err
	}
	message := fmt.Appendf(nil, "<%d>1 %s %s policy-service %d checkpoint - %s",
		priority, now.Format("2006-01-02T15:04:05.000000Z"), s.host, os.Getpid(), text)
	ctx, cancel := context.WithTimeout(ctx, sinkTime)
	defer cancel()
	connection, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if network := connection.RemoteAddr().Network(); network != "udp" && network != "unixgram" {
		message = append(fmt.Appendf(nil, "%d ", len(message)), message...)
	}
	_, err = connection.Write(message)
	return err
}

func (s *syslog) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	switch s.scheme {
	case "tls":
		return (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.address)
	case "unix":
		if connection, err := d.DialContext(ctx, "unixgram", s.address); err == nil {
			return connection, nil
		}
	}
	return d.DialContext(ctx, s.scheme, s.address)
}
