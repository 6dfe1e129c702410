package decisionlog_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// verifyBundle writes a bundle of a closed log and verifies it with the log's keys.
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

// A bundle of the whole log reveals missing entries that no entry explains, even if the hashes
// match. A bundle of a range cannot.
func TestBundleShowsUnexplainedGap(t *testing.T) {
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

// FuzzVerifyBundle verifies mutated bundles. Only those with the original entries pass.
func FuzzVerifyBundle(f *testing.F) {
	dir := makeSegments(f, 300)
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		f.Fatal(err)
	}
	defer r.Close()
	keys, err := r.Keys()
	if err != nil {
		f.Fatal(err)
	}
	var good bytes.Buffer
	if _, err := r.WriteBundle(f.Context(), &good, decisionlog.Filter{From: 250, Until: 260}); err != nil {
		f.Fatal(err)
	}
	f.Add(0, byte(0), 0)
	f.Add(40, byte(1), 0)
	f.Add(good.Len()-10, byte(0x80), 3)
	f.Fuzz(func(t *testing.T, at int, flip byte, cut int) {
		file := bytes.Clone(good.Bytes())
		if at >= 0 && at < len(file) {
			file[at] ^= flip
		}
		if cut > 0 && cut < len(file) {
			file = file[:len(file)-cut]
		}
		report, err := decisionlog.VerifyBundle(bytes.NewReader(file), int64(len(file)), keys)
		var integrity *decisionlog.IntegrityError
		if err != nil && !errors.As(err, &integrity) {
			t.Errorf("%v, want an IntegrityError", err)
		}
		if err == nil && (report.Entries != 10 || report.First != 250 || report.Root != r.Head().Root) {
			t.Errorf("another bundle is verified: %+v", report)
		}
	})
}

// FuzzParseCheckpoint parses notes that nobody has signed.
func FuzzParseCheckpoint(f *testing.F) {
	dir := makeSegments(f, 3)
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		f.Fatal(err)
	}
	defer r.Close()
	keys, err := r.Keys()
	if err != nil {
		f.Fatal(err)
	}
	signed, err := r.Sign()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(signed.Note))
	f.Add(bytes.Replace([]byte(signed.Note), []byte("\n3\n"), []byte("\n03\n"), 1))
	f.Add([]byte("x\n1\nAAAA\n\n— x AAAA\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := decisionlog.ParseCheckpoint(text, keys)
		if err == nil && (got.Head != r.Head() || got.Origin != signed.Origin) {
			t.Errorf("%q is taken for a checkpoint", text)
		}
	})
}
