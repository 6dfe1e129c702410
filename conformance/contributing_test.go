package conformance_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// CONTRIBUTING has every target of the Makefile, and tests that exist.
func TestContributing(t *testing.T) {
	page, makefile := read(t, "../CONTRIBUTING.md"), read(t, "../Makefile")
	phony := submatches(`(?m)^\.PHONY: (.*)$`, makefile)
	if len(phony) != 1 {
		t.Fatalf("the Makefile lists its targets in %d places", len(phony))
	}
	targets := strings.Fields(phony[0])
	for _, target := range targets {
		if !strings.Contains(page, "`"+target+"`") {
			t.Errorf("CONTRIBUTING.md does not name the target %s", target)
		}
	}
	for _, target := range submatches("(?m)(?:^\\$ |`)make ([a-z-]+)", page) {
		if !regexp.MustCompile(`(?m)^` + target + `:`).MatchString(makefile) {
			t.Errorf("there is no target %s", target)
		}
	}
	for _, m := range regexp.MustCompile(`go test(?: -race)? (\./[\w/-]+).*?((?:Test|Fuzz)\w+)`).FindAllStringSubmatch(page, -1) {
		if !declares(t, "."+m[1], m[2]) {
			t.Errorf("%s has no %s", m[1], m[2])
		}
	}
}

// declares reports whether a package has a test of the name.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool { return strings.Contains(read(t, file), "\nfunc "+name+"(") })
}
