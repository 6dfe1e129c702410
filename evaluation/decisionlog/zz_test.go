package decisionlog_test
import ("bytes";"errors";"os";"testing";"github.com/google/go-cmp/cmp";"github.com/policy-service/policy-service/evaluation/decisionlog")
func TestZZEveryByte(t *testing.T) {
	dir, _ := makeLog(t, 60)
	file := compact(t, dir)
	want, err := decisionlog.Verify(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := 0; i < len(file); i += 1 {
		damaged := bytes.Clone(file)
		damaged[i] ^= 1 << (i % 8)
		if err := os.WriteFile(segmentPath(dir), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := decisionlog.Verify(t.Context(), dir)
		var integrity *decisionlog.IntegrityError
		switch {
		case errors.As(err, &integrity):
			found++
		case err != nil:
			t.Errorf("byte %d: %v", i, err)
		case !cmp.Equal(got, want):
			t.Errorf("byte %d is changed, and the log is another:\n%s", i, cmp.Diff(want, got))
		}
	}
	if found == 0 {
		t.Error("no change is found")
	}
	t.Logf("%d changes found in %d bytes", found, len(file))
}


