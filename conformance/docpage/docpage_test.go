package docpage_test

import (
	"errors"
	"testing"

	"github.com/policy-service/policy-service/conformance/docpage"
)

func TestReplace(t *testing.T) {
	const page = "# Page\n\n<!-- generated: a -->\nold\n<!-- end -->\n\n<!-- generated: b -->\n<!-- end -->\n"
	const want = "# Page\n\n<!-- generated: a -->\nold\n<!-- end -->\n\n<!-- generated: b -->\nnew\n<!-- end -->\n"
	got, err := docpage.Replace(page, "b", "\nnew\n\n")
	if err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	if again, err := docpage.Replace(got, "b", "new"); err != nil || again != want {
		t.Errorf("a second time: got %q, %v", again, err)
	}
	for _, without := range []string{"# Page\n", "<!-- generated: b -->\nold\n"} {
		if _, err := docpage.Replace(without, "b", "new"); !errors.Is(err, docpage.ErrNoPart) {
			t.Errorf("%q: got %v", without, err)
		}
	}
}

func TestTable(t *testing.T) {
	const want = "| key | meaning |\n|---|---|\n| `a\\|b` | one two |\n"
	if got := docpage.Table([]string{"key", "meaning"}, [][]string{{"`a|b`", "one\ntwo"}}); got != want {
		t.Errorf("got %q", got)
	}
}
