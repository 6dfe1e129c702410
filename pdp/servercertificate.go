package pdp

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// A certificate is the certificate of the main listener. When its files change, new connections use
// the new content, or the last valid one.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	written time.Time // newer modification time of the two files
	looked  time.Time
}

// certificateAge is how long the state of the files is cached.
const certificateAge = time.Second

func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	return c, nil
}

// get implements GetCertificate of a tls.Config.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= certificateAge {
		c.looked = now
		if err := c.read(); err != nil {
			c.log.Warn("TLS certificate not read, the last one is still used", "error", err)
		}
	}
	return c.current, nil
}

// read reads the files if one of them has changed.
func (c *certificate) read() error {
	var written time.Time
	for _, file := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		if info.ModTime().After(written) {
			written = info.ModTime()
		}
	}
	if written.Equal(c.written) {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current, c.written = &pair, written
	return nil
}
