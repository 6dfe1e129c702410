package conformance_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/conformance/process"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// The paths that the files of deploy/ have on a host.
const (
	settingsDir = "/etc/policy-service"
	stateDir    = "/var/lib/policy-service"
)

// newCertificate makes a certificate as a Secret has it.
func newCertificate(t *testing.T) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}
}

// gatewayKey is the API key that takes the place of the one in the settings.
const gatewayKey = "psk_of_the_test"

var (
	digest = regexp.MustCompile(`"0{64}"`)
	port   = regexp.MustCompile(`listen: ([0-9.]+):\d+`)
)

// here are settings for this host: its paths, free ports and a key we have.
func here(settings, dir, state string) string {
	settings = digest.ReplaceAllString(settings, fmt.Sprintf("%x", sha256.Sum256([]byte(gatewayKey))))
	settings = port.ReplaceAllString(settings, "listen: $1:0")
	return strings.NewReplacer(settingsDir, dir, stateDir, state).Replace(settings)
}

// ask asks the main listener over TLS, with a key or none, and returns the
// status and the body.
func (s *server) ask(t *testing.T, key, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+authzen.PathEvaluation, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the certificate is ours and names nobody
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

const reading = `{"subject":{"type":"agent","id":"triage"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"github.get_file"}}`

// onHost writes what a host has: the settings of deploy/, a policy store, and a
// certificate.
func onHost(t *testing.T) (dir, state string) {
	t.Helper()
	dir, state = t.TempDir(), t.TempDir()
	for name, text := range newCertificate(t) {
		place(t, filepath.Join(dir, "tls", name), text)
	}
	place(t, filepath.Join(dir, "config.yaml"), here(read(t, "../deploy/config.yaml"), dir, state))
	if err := os.CopyFS(filepath.Join(dir, "policies"), os.DirFS("../policies/agent-tools")); err != nil {
		t.Fatal(err)
	}
	return dir, state
}

// The unit serves, and asks callers who they are. It is not started again where
// that would not help.
func TestUnit(t *testing.T) {
	unit := read(t, "../deploy/policy-service.service")
	dir, _ := onHost(t)
	start := submatches(`(?m)^ExecStart=/usr/bin/policy-service (.*)$`, unit)
	s := run(t, strings.ReplaceAll(start[0], settingsDir, dir))
	if code, body := s.ask(t, "psk_of_nobody", reading); code != http.StatusUnauthorized {
		t.Errorf("with another's key: %d %s", code, body)
	}

	if secret := submatches(`(?m)^#? ?(page_key|callback_secret):`, read(t, "../deploy/config.yaml")); len(secret) > 0 || !strings.Contains(unit, "\nEnvironmentFile=-/etc/policy-service/environment\n") {
		t.Errorf("the settings, which everybody on the host may read, have %v, and the unit no file for secrets", secret)
	}

	codes := submatches(`exit(?:Invalid|Integrity)\s+= (\d+)`, read(t, "../cmd/policy-service/main.go"))
	prevented := strings.Fields(submatches(`(?m)^RestartPreventExitStatus=(.*)$`, unit)[0])
	if !slices.Equal(codes, prevented) {
		t.Errorf("not started again after %v, which should be %v", prevented, codes)
	}
}

// The container serves with no more than its variables and what is mounted, and
// its health check finds that.
func TestContainer(t *testing.T) {
	dockerfile := read(t, "../deploy/Dockerfile")
	dir, state := onHost(t)
	var variables []string
	for _, variable := range submatches(`(POLICY_SERVICE_[A-Z_]+=\S+)`, dockerfile) {
		variables = append(variables, here(variable, dir, state))
	}
	inside := func(command string) *exec.Cmd {
		path, err := process.Program()
		if err != nil {
			t.Fatal(err)
		}
		args := submatches(`"([a-z-]+)"`, command)
		process := exec.Command(path, args...)
		process.Dir, process.Env = t.TempDir(), variables
		return process
	}
	check := submatches(`(?m)^HEALTHCHECK .* CMD \["/usr/bin/policy-service", (.*)\]$`, dockerfile)[0]
	if out, err := inside(check).CombinedOutput(); err == nil {
		t.Fatalf("nothing runs, and is healthy:\n%s", out)
	}
	launch(t, inside(submatches(`(?m)^CMD \[(.*)\]$`, dockerfile)[0]))
	if out, err := inside(check).CombinedOutput(); err != nil {
		t.Errorf("health check: %v\n%s", err, out)
	}
}

// No caller can have the digest that is shipped.
func TestShippedDigest(t *testing.T) {
	for _, settings := range []string{read(t, "../deploy/config.yaml"), manifests(t)["ConfigMap/policy-service-settings"].Data["config.yaml"]} {
		if got := strings.Count(settings, "sha256:"); got != len(digest.FindAllString(settings, -1)) {
			t.Errorf("a digest is not the one of no key:\n%s", settings)
		}
	}
}

// Every flag and variable that a file of deploy/ names is one of the program.
func TestDeployedFlags(t *testing.T) {
	known := flagsAndVariables(t)
	if unknown("--polices $POLICY_SERVICE_STATES", known) == nil {
		t.Fatal("a flag that is not there is not noticed")
	}
	err := filepath.WalkDir("../deploy", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		for _, line := range strings.Split(read(t, path), "\n") {
			if flagsOfOthers.MatchString(line) {
				continue
			}
			for _, name := range unknown(line, known) {
				t.Errorf("%s: %s is no flag and no variable", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// flagsOfOthers are lines with flags that are not the program's.
var flagsOfOthers = regexp.MustCompile(`docker |kubectl |^HEALTHCHECK |^COPY `)

var flagOrVariable = regexp.MustCompile(`(?:^|[\s$"\[,])(--[a-z][a-z.-]+|POLICY_SERVICE_[A-Z_]+)`)

// unknown returns the flags and variables in a text that are not known.
func unknown(text string, known map[string]bool) []string {
	var names []string
	for _, m := range flagOrVariable.FindAllStringSubmatch(text, -1) {
		if name := strings.TrimSuffix(m[1], "."); !known[name] {
			names = append(names, name)
		}
	}
	return names
}

// flagsAndVariables are those that the program says it has.
func flagsAndVariables(t *testing.T) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	help, err := policyService(t, "serve", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range submatches(`(--[a-z][a-z.-]+|POLICY_SERVICE_[A-Z_]+)`, help) {
		known[name] = true
	}
	return known
}

// run serves with these arguments of the program.
func run(t *testing.T, args string) *server {
	t.Helper()
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, exec.Command(path, strings.Fields(args)...))
}

// policyService runs the program and returns what it printed.
func policyService(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := process.Program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

// place writes a file, and the directories it is in.
func place(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// statusAt asks the admin listener without a key.
func (s *server) statusAt(t *testing.T, path string) int {
	t.Helper()
	response, err := http.Get(s.Admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
