package pdp_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp"
)

// A certificate is renewed without a restart. While its two files do not match, the last valid pair
// is used.
func TestCertificateIsRenewed(t *testing.T) {
	cert, key := writeCertificate(t)
	otherCert, otherKey := writeCertificate(t)
	clock := time.Now()
	var said bytes.Buffer
	get, err := pdp.NewCertificate(cert, key, slog.New(slog.NewTextHandler(&said, nil)), func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		clock = clock.Add(2 * time.Second)
		c, err := get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(c.Certificate[0])
	}
	put := func(to, from string) {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(to, clock, clock); err != nil { // two writes may have the same time
			t.Fatal(err)
		}
	}
	first := serial()
	put(cert, otherCert)
	if serial() != first || !strings.Contains(said.String(), "the last one is still used") {
		t.Errorf("with a key that is not the certificate's: %s", said.String())
	}
	put(key, otherKey)
	second := serial()
	if second == first {
		t.Error("the new certificate is not used")
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if serial() != second {
		t.Error("a certificate that is gone is used no more")
	}
}
