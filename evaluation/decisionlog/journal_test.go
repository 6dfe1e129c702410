package decisionlog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// journaled creates a log that was not closed: the last four of its six entries are only in the
// journal, one in each record. It returns the file and offset of the last record.
func journaled(t *testing.T) (dir, file string, last int) {
	t.Helper()
	whole := t.TempDir()
	l := openLog(t, whole, decisionlog.Config{})
	fill(t, l, 0, 2)
	_ = l.Head()
	if _, err := l.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	release := l.Hold(t)
	fill(t, l, 2, 6)
	dir = filepath.Join(t.TempDir(), "killed")
	copyDir(t, whole, dir)
	release()
	file = filepath.Join(dir, "log", "journal.0")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if last = bytes.LastIndex(text, []byte("dlj1")); last < 0 || !bytes.Contains(text[last:], []byte(`{"index":5,`)) {
		t.Fatalf("the journal is %q", text)
	}
	return dir, file, last
}

// entriesOf returns the number of readable entries of a log that was not closed.
func entriesOf(t *testing.T, dir string) (int, error) {
	t.Helper()
	r, err := decisionlog.OpenReadOnly(dir)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return len(lines(t, r)), nil
}

// A complete record of the journal with any flipped bit is damage.
func TestJournalDamaged(t *testing.T) {
	dir, file, last := journaled(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := entriesOf(t, dir); n != 6 || err != nil {
		t.Fatalf("control: %d entries, %v", n, err)
	}
	length := bytes.IndexByte(text[last:], '\n') + 1
	for bit := range 8 * length {
		if bit >= 8*40 && bit < 8*(length-20) && bit%31 != 0 {
			continue
		}
		harmed := bytes.Clone(text)
		harmed[last+bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(file, harmed, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := entriesOf(t, dir)
		if !errors.Is(err, decisionlog.ErrRolledBack) {
			t.Errorf("bit %d of byte %d of %d: %d entries, %v", bit%8, bit/8, length, n, err)
			continue
		}
		checkIntegrity(t, err, 5)
	}
	if _, err := decisionlog.Open(dir, decisionlog.Config{}); !errors.Is(err, decisionlog.ErrRolledBack) {
		t.Errorf("it is opened: %v", err)
	}
	if _, err := decisionlog.Verify(t.Context(), dir); !errors.Is(err, decisionlog.ErrRolledBack) {
		t.Errorf("it is verified: %v", err)
	}
	l := openLog(t, dir, decisionlog.Config{AcceptRollback: "a bit of the disk"})
	if all := lines(t, l.Reader); len(all) != 6 || all[4].ID != entry(4).ID || all[5].Kind != decisionlog.KindAdmin {
		t.Errorf("what is left is not five entries and that it is so: %+v", all)
	}
}

// So is a record with several changed bytes.
func TestJournalOverwritten(t *testing.T) {
	dir, file, last := journaled(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	harmed := bytes.Replace(text, []byte(`"alice"`), []byte(`"mally"`), -1)
	copy(harmed[:last], text)
	if err := os.WriteFile(file, harmed, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = entriesOf(t, dir)
	checkIntegrity(t, err, 5)
}

// A record whose write was interrupted, at any point, ends the journal.
func TestJournalInterruptedWrite(t *testing.T) {
	dir, file, last := journaled(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := last + bytes.IndexByte(text[last:], '\n') + 1
	older := append(make([]byte, 0, 2*len(text)), text...) // an earlier use of the file left these bytes
	for at := last; at < end; at += 1 + (at-last)/40 {
		for name, torn := range map[string][]byte{
			"cut off": text[:at],
			"zeros":   append(bytes.Clone(text[:at]), make([]byte, 4096)...),
			"older":   append(append(bytes.Clone(text[:at]), bytes.Repeat([]byte("x"), 600)...), older...),
		} {
			if err := os.WriteFile(file, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if n, err := entriesOf(t, dir); n != 5 || err != nil {
				t.Fatalf("%s at byte %d of %d: %d entries, %v", name, at-last, end-last, n, err)
			}
		}
	}
	verifyLog(t, dir)
}

// A record that was interrupted while it overwrote one of the same length ends the journal.
func TestJournalInterruptedOverwrite(t *testing.T) {
	dir, before := t.TempDir(), t.TempDir()
	l := openLog(t, dir, decisionlog.Config{})
	long := func(n int) {
		e := entry(n)
		e.Request = []byte(`{"a":"` + strings.Repeat(strconv.Itoa(n), 1500) + `"}`)
		if err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	long(1)
	_ = l.Head() // the journal begins again
	copyDir(t, dir, before)
	long(3) // of the same length
	now, older := journalOf(t, dir), journalOf(t, before)
	if len(now) != len(older) || bytes.Equal(now, older) {
		t.Fatalf("the journal has %d bytes, and had %d", len(now), len(older))
	}
	for cut := range len(now) {
		copied := filepath.Join(t.TempDir(), "killed")
		copyDir(t, before, copied)
		torn := append(bytes.Clone(now[:cut]), older[cut:]...)
		if bytes.Equal(torn, now) {
			break
		}
		if cut%256 != 0 && cut < len(now)-6 {
			continue
		}
		if err := os.WriteFile(filepath.Join(copied, "log", "journal.0"), torn, 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := entriesOf(t, copied); n != 1 || err != nil {
			t.Errorf("at byte %d of %d: %d entries, %v", cut, len(now), n, err)
		}
	}
}

func journalOf(t *testing.T, dir string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "log", "journal.0"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
