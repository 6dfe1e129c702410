package filereload_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/pdp/filereload"
)

// A value follows its file. While the file is gone or invalid, the last valid
// value is used, and the log says so.
func TestValueFollowsItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	clock := time.Now()
	write := func(text string) {
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chtimes(file, clock, clock)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	var said bytes.Buffer
	cfg := filereload.Config{Log: slog.New(slog.NewTextHandler(&said, nil)), Now: func() time.Time { return clock }}
	reads := 0
	v, err := filereload.New("token", func() (string, error) {
		reads++
		text, err := os.ReadFile(file)
		if string(text) == "" {
			err = errors.Join(err, errors.New("it is empty"))
		}
		return string(text), err
	}, cfg, file)
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		do   func()
		want string
		said string
	}{
		{"nothing", func() {}, "one", ""},
		{"replaced", func() { write("two") }, "two", "read again"},
		{"of the same size", func() { write("six") }, "six", "read again"},
		{"emptied", func() { write("") }, "six", "the last one is still used"},
		{"removed", func() { _ = os.Remove(file) }, "six", "the last one is still used"},
		{"back", func() { write("ten") }, "ten", "read again"},
	}
	for _, step := range steps {
		said.Reset()
		clock = clock.Add(2 * time.Second)
		step.do()
		if got := v.Get(); got != step.want || !strings.Contains(said.String(), step.said) || step.said == "" && said.Len() > 0 {
			t.Errorf("%s: %s, log %s", step.name, got, said.String())
		}
	}
	before := reads
	write("new")
	if v.Get() != "ten" || reads != before {
		t.Error("the file is looked at more than once a second")
	}
}

func TestMissingFileIsAnError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := filereload.NewCertPool(missing, filereload.Config{}); err == nil {
		t.Error("of certificates")
	}
	if _, err := filereload.NewCertificate(missing, missing, filereload.Config{}); err == nil {
		t.Error("of a listener")
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := filereload.NewCertPool(text, filereload.Config{}); err == nil {
		t.Error("without a certificate")
	}
}
