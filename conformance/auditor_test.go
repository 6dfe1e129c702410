package conformance_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// What docs/guides/auditor.md shows: a bundle of a running server verifies with a
// program that is not the server's, and with one byte changed it does not.
func TestAuditor(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	s := launch(t, serveCommand(t, unpack(t, "agent-tools"), state))
	s.post(t, authzen.PathEvaluation, []byte(reading))
	bundle, keys := filepath.Join(dir, "today.zip"), filepath.Join(dir, "key.pub")
	if out, err := policyService(t, "log", "export", "--state", state, "--bundle", bundle); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	key, err := policyService(t, "log", "keys", "--state", state)
	if err != nil {
		t.Fatalf("%v: %s", err, key)
	}
	place(t, keys, key)
	verifier := shipped(t, "verify-log")

	if out, err := exec.Command(verifier, bundle, keys).CombinedOutput(); err != nil {
		t.Errorf("the bundle: %v: %s", err, out)
	}
	changed := filepath.Join(dir, "changed.zip")
	place(t, changed, changeEntry(t, bundle, "triage", "triagf"))
	out, err := exec.Command(verifier, changed, keys).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 4 || string(out) != "verify-log: entry 1 is not what was recorded\n" {
		t.Errorf("the changed bundle: %v: %s", err, out)
	}
}

// changeEntry returns a bundle with something else in the first entry that has it.
func changeEntry(t *testing.T, bundle, from, to string) string {
	t.Helper()
	text, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	old, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, file := range old.File {
		r, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		member, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name == "entries.jsonl" {
			member = bytes.Replace(member, []byte(from), []byte(to), 1)
		}
		in, err := w.Create(file.Name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(member); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
