// Package external finds the programs of others that tests run. In CI a missing
// program is a failure, so that no test is lost there unnoticed. Elsewhere the
// test is skipped, and says which Debian package it needs.
package external

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Debian has the package of each program that a test may need.
var Debian = map[string]string{
	"chromium": "chromium",
	"curl":     "curl",
	"jq":       "jq",
	"node":     "nodejs",
	"npm":      "npm",
	"python3":  "python3",

	// modules of Python
	"cryptography": "python3-cryptography",
	"jwt":          "python3-jwt",

	"strace": "strace",
	"wrk":    "wrk",
}

// Program returns the path of a program in [Debian].
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, "%s is missing: install the Debian package %s", name, Debian[name])
	}
	return path
}

// Python returns the path of a Python that has modules in [Debian].
func Python(t testing.TB, modules ...string) string {
	t.Helper()
	imports := "import " + strings.Join(modules, ", ")
	for _, name := range []string{"python3", "/usr/bin/python3"} { // Debian's may not be the first one
		if path, err := exec.LookPath(name); err == nil && exec.Command(path, "-c", imports).Run() == nil {
			return path
		}
	}
	for _, module := range modules {
		missing(t, "the module %s of Python may be missing: install the Debian package %s", module, Debian[module])
	}
	return ""
}

// Packages installs the npm packages that the package-lock.json in a directory
// names. They come over the network: a short run of the tests goes without them.
func Packages(t testing.TB, dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages of npm: make check runs it")
	}
	Program(t, "node")
	installing.Lock()
	defer installing.Unlock()
	if installed(dir) {
		return
	}
	install := exec.Command(Program(t, "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	out, err := install.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		missing(t, "npm ci in %s: %v\n%s", dir, err, out)
	case err != nil:
		t.Fatal(err)
	}
}

// installing keeps two tests from installing the same packages.
var installing sync.Mutex

// installed reports whether npm has installed what package-lock.json names: it
// writes a lock file of its own last.
func installed(dir string) bool {
	wanted, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	got, missing := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	return err == nil && missing == nil && !got.ModTime().Before(wanted.ModTime())
}

// missing ends a test that cannot be: it fails where nobody would notice that it
// was skipped.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	} else {
		t.Skipf(format, args...)
	}
}
