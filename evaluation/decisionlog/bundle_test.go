package decisionlog_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// verifyBundle writes a bundle of a log that no one has open, and verifies it
// with the keys of the log.
func verifyBundle(t *testing.T, dir string, f decisionlog.Filter) (*decisionlog.BundleReport, error) {
	t.Helper()
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	keys, err := r.Keys()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := r.WriteBundle(t.Context(), &out, f); err != nil {
		t.Fatal(err)
	}
	return decisionlog.VerifyBundle(bytes.NewReader(out.Bytes()), int64(out.Len()), keys)
}

// A bundle of the whole log shows that entries are gone which no entry says
// were pruned, although the hashes are right. One of a range cannot.
func TestBundleOfUnsaidGap(t *testing.T) {
	for name, at := range map[string]int{"at the beginning": 0, "in between": 512} {
		t.Run(name, func(t *testing.T) {
			dir, _ := aged(t)
			if report, err := verifyBundle(t, dir, decisionlog.Filter{}); err != nil || report.Entries != 1281 {
				t.Fatalf("control: %v, %v", report, err)
			}
			hashes := leftOf(t, dir, at)
			if err := errors.Join(os.WriteFile(prunedPath(dir, at), hashes, 0o600), os.Remove(segmentOf(dir, at))); err != nil {
				t.Fatal(err)
			}
			_, err := verifyBundle(t, dir, decisionlog.Filter{})
			checkIntegrity(t, err, int64(at))
			if report, err := verifyBundle(t, dir, decisionlog.Filter{From: 256}); err != nil || report.Last != 1280 {
				t.Errorf("a range: %v, %v", report, err)
			}
		})
	}
}
