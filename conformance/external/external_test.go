package external_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/conformance/external"
)

// An outcome notes how a test would have ended.
type outcome struct {
	testing.TB
	ended string
}

func (o *outcome) Helper() {}
func (o *outcome) Skipf(format string, args ...any) {
	o.ended = "skip: " + fmt.Sprintf(format, args...)
}
func (o *outcome) Fatalf(format string, args ...any) {
	o.ended = "fail: " + fmt.Sprintf(format, args...)
}

// What is missing fails in CI and is skipped elsewhere; both name the package.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for ci, want := range map[string]string{"true": "fail: ", "": "skip: "} {
		t.Setenv("CI", ci)
		for name, deb := range external.Debian {
			o := outcome{TB: t}
			external.Program(&o, name)
			if o.ended != want+name+" is missing: install the Debian package "+deb {
				t.Errorf("CI=%q: %s", ci, o.ended)
			}
		}
	}
}

// CI installs every program, and CONTRIBUTING tells who runs the tests elsewhere.
func TestInstalled(t *testing.T) {
	for _, page := range []string{"../../.ci/run", "../../CONTRIBUTING.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \n|`,.:;()", r) })
		for name, deb := range external.Debian {
			if !slices.Contains(words, deb) {
				t.Errorf("%s does not name %s, which %s is of", page, deb, name)
			}
		}
	}
}
