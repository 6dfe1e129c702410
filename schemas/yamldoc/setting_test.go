package yamldoc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// What is found wrong with settings has the place of its key, or of what makes it
// required, in the order of the file; what could not be decoded is not told twice.
func TestSettings(t *testing.T) {
	d, err := yamldoc.Parse("f.yaml", []byte("name: a\nmaybe:\n  votes: many\n  wait: 3s\nlist: [x, y]\n"))
	if err != nil {
		t.Fatal(err)
	}
	decoded := d.Decode(new(file))
	setting := func(reason string, path ...string) error { return &yamldoc.SettingError{Path: path, Reason: reason} }
	wrong := errors.Join(
		setting("must be b", "list", "1"),
		errors.Join(yamldoc.Below(errors.Join(setting("must be more", "wait"), setting("must be 1", "votes")), "maybe"), nil),
		&yamldoc.SettingError{Path: []string{"code"}, At: []string{"name"}, Reason: "is required beside name"},
		setting("is required", "rate"),
		errors.New("nothing fits"),
		yamldoc.Below(errors.New("does not fit"), "maybe"),
		yamldoc.Below(nil, "maybe"),
	)
	var got []string
	for _, f := range d.Settings(decoded, wrong) {
		got = append(got, f.Error())
	}
	want := []string{
		"f.yaml: rate: is required",
		"f.yaml: nothing fits",
		"f.yaml:1:1: code: is required beside name",
		"f.yaml:2:1: maybe: does not fit",
		`f.yaml:3:10: maybe.votes: must be a whole number, not "many"`,
		"f.yaml:4:3: maybe.wait: must be more",
		"f.yaml:5:11: list.1: must be b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if all := d.Settings(nil, nil); all != nil {
		t.Errorf("nothing is wrong: %s", strings.TrimSpace(yamldoc.Errors(all).Error()))
	}
}
