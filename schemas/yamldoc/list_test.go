package yamldoc_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A color is text that has to be one of two.
type color string

func (c *color) UnmarshalText(text []byte) error {
	if *c = color(text); *c != "red" && *c != "blue" {
		return fmt.Errorf("there is no color %q", text)
	}
	return nil
}

// A list that must have an element is not empty, and text that a type refuses is
// told with its own place.
func TestListsAndTexts(t *testing.T) {
	type painter struct {
		Colors []color  `yaml:"colors" list:"some"`
		Tools  []string `yaml:"tools"`
	}
	type house struct {
		Painters []painter `yaml:"painters" list:"some"`
	}
	const text = "painters:\n- colors: []\n- tools: []\n  colors: [red, gren, \"\"]\n"
	want := `f.yaml:2:3: painters.0.colors: is an empty list (leave the key out, or name some)
f.yaml:4:17: painters.1.colors.1: there is no color "gren"
f.yaml:4:23: painters.1.colors.2: there is no color ""`
	if diff := cmp.Diff(want, faults(t, text, &house{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := faults(t, "painters: []\n", &house{}), "f.yaml:1:1: painters: is an empty list (leave the key out, or name some)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
