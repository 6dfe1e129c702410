package yamldoc_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/yamldoc"
)

type part struct {
	Wait  time.Duration `yaml:"wait"`
	Votes int           `yaml:"votes"`
}

type file struct {
	Name   string            `yaml:"name"`
	Code   int               `yaml:"code" number:"signed"`
	Rate   float64           `yaml:"rate"`
	Small  uint8             `yaml:"small"`
	Strict bool              `yaml:"strict"`
	List   []string          `yaml:"list"`
	Names  map[string]string `yaml:"names"`
	Parts  map[string]part   `yaml:"parts"`
	Free   map[string]any    `yaml:"free"`
	Maybe  *part             `yaml:"maybe"`
	Inner  `yaml:",inline"`
	Hidden string `yaml:"-"`
}

// Inner is part of what has it.
type Inner struct {
	Depth int `yaml:"depth"`
}

// faults reads a file and returns what is wrong with it, a line each.
func faults(t *testing.T, text string, into any) string {
	t.Helper()
	d, err := yamldoc.Parse("f.yaml", []byte(text))
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, fault := range d.Decode(into) {
		lines = append(lines, fault.Error())
	}
	return strings.Join(lines, "\n")
}

func TestDecode(t *testing.T) {
	var got file
	if wrong := faults(t, `
name: a
code: -32001
rate: 2.5
small: 255
strict: true
list: &l [x, "7"]
names: &n {b: c}
parts: {p: {wait: 1d12h, votes: 2}}
free: {deep: [1, {x: null}]}
maybe: {wait: 90m}
depth: 3
`, &got); wrong != "" {
		t.Fatal(wrong)
	}
	want := file{
		Name: "a", Code: -32001, Rate: 2.5, Small: 255, Strict: true, List: []string{"x", "7"}, Names: map[string]string{"b": "c"},
		Parts: map[string]part{"p": {36 * time.Hour, 2}}, Free: map[string]any{"deep": []any{uint64(1), map[string]any{"x": nil}}},
		Maybe: &part{Wait: 90 * time.Minute}, Inner: Inner{3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

// A merged key never takes the place of one that is written beside it.
func TestMergedKeys(t *testing.T) {
	for _, text := range []string{
		"maybe: &m {votes: 1}\n<<: {code: 1}\ncode: 2",
		"maybe: &m {votes: 1}\ncode: 2\n<<: {code: 1}",
	} {
		var got file
		if wrong := faults(t, text, &got); got.Code == 1 || wrong == "" && got.Code != 2 {
			t.Errorf("%q: %d, %s", text, got.Code, wrong)
		}
	}
}

// A line of dashes, as people draw them, is no list in a list.
func TestLinesOfDashes(t *testing.T) {
	var got file
	line := strings.Repeat("-", 100)
	if wrong := faults(t, "# "+line+"\nname: a"+line+"\n", &got); wrong != "" || got.Name != "a"+line {
		t.Errorf("%q, %s", got.Name, wrong)
	}
}

// What is wrong with a value is told with its place, its key, what it is and
// what it should be; what is wrong with one key hides nothing of another.
func TestFaults(t *testing.T) {
	const aDuration = "must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not "
	for text, want := range map[string]string{
		"nmae: a":                      `f.yaml:1:1: unknown field "nmae" (did you mean "name"?)`,
		"hidden: a":                    `f.yaml:1:1: unknown field "hidden"`,
		"parts: {p: {vote: 1}}":        `f.yaml:1:13: unknown field "vote" (did you mean "votes"?)`,
		"name: 7":                      `f.yaml:1:7: name: must be text, not 7 (put it in quotes)`,
		"name: yes\nname: no":          `f.yaml:2:1: mapping key "name" already defined at [1:1]`,
		"name: [a]":                    `f.yaml:1:7: name: must be text, not a list`,
		"name: true":                   `f.yaml:1:7: name: must be text, not true (put it in quotes)`,
		"strict: yes":                  `f.yaml:1:9: strict: must be true or false, not "yes"`,
		"parts:\n  p:\n    votes: 2.7": `f.yaml:3:12: parts.p.votes: must be a whole number, not 2.7`,
		"parts: {p: {votes: \"2\"}}":   `f.yaml:1:20: parts.p.votes: must be a whole number, not "2"`,
		"parts: {p: {votes: -2}}":      `f.yaml:1:20: parts.p.votes: must be a whole number from 0, not -2`,
		"parts: {p: {wait: 30}}":       `f.yaml:1:19: parts.p.wait: ` + aDuration + `30`,
		"parts: {p: {wait: -1s}}":      `f.yaml:1:19: parts.p.wait: ` + aDuration + `"-1s"`,
		"parts: {p: {wait: half}}":     `f.yaml:1:19: parts.p.wait: ` + aDuration + `"half"`,
		"parts: {p: {wait: 1w}}":       `f.yaml:1:19: parts.p.wait: ` + aDuration + `"1w"`,
		"parts: {p: {wait: [1s]}}":     `f.yaml:1:19: parts.p.wait: ` + aDuration + `a list`,
		"maybe: {wait: }":              `f.yaml:1:14: maybe.wait: ` + aDuration + `nothing`,
		"rate: -1":                     `f.yaml:1:7: rate: must be a number from 0, not -1`,
		"rate: fast":                   `f.yaml:1:7: rate: must be a number, not "fast"`,
		"small: 256":                   `f.yaml:1:8: small: must be a whole number, not 256`,
		"code: 9223372036854775808":    `f.yaml:1:7: code: must be a whole number, not 9223372036854775808`,
		"list:":                        `f.yaml:1:7: list: must be a list, not nothing (leave the key out, or give it a value)`,
		"list: a":                      `f.yaml:1:7: list: must be a list, not "a"`,
		"list: [a, 1]":                 `f.yaml:1:11: list.1: must be text, not 1 (put it in quotes)`,
		"names: [a]":                   `f.yaml:1:8: names: must be a mapping, not a list`,
		"names: {a: [b]}":              `f.yaml:1:12: names.a: must be text, not a list`,
		"maybe: a":                     `f.yaml:1:8: maybe: must be a mapping, not "a"`,
		"[a]":                          `f.yaml:1:1: must be a mapping, not a list`,
		"name: a\n---\nname: b":        `f.yaml:3:1: there is more than one document (leave out what is behind ---)`,
		"name: !!python/object a":      `f.yaml:1:7: the tag "!!python/object" is not understood (leave it out)`,
		"? a\n: b":                     `f.yaml:1:1: a key of several lines is not understood (write KEY: VALUE)`,
		"free: &a {b: *a}":             `f.yaml:1:14: the alias *a is part of what it stands for`,
		"name: *a":                     `f.yaml:1:7: there is no anchor &a before this alias`,
		"free: {a: &a 1, b: &a 2}":     `f.yaml:1:20: the anchor &a is there twice`,
		"name: a\rb":                   `f.yaml: a carriage return stands alone: end lines with a line feed`,
		"strict: 1\nnmae: b\ncode: x": "f.yaml:1:9: strict: must be true or false, not 1\n" +
			`f.yaml:2:1: unknown field "nmae" (did you mean "name"?)` + "\n" + `f.yaml:3:7: code: must be a whole number, not "x"`,
	} {
		if diff := cmp.Diff(want, faults(t, text, new(file))); diff != "" {
			t.Errorf("%s\n(-want +got):\n%s", text, diff)
		}
	}
}

// An alias stands for its anchor's value, and for the faults in it.
func TestAliases(t *testing.T) {
	var got file
	if wrong := faults(t, "names: &n {a: b}\nfree: {x: *n}\nparts: {p: &p {votes: 2}, q: *p, r: {<<: *p, wait: 1s}}\n", &got); wrong != "" {
		t.Fatal(wrong)
	}
	if got.Parts["q"].Votes != 2 || got.Parts["r"] != (part{time.Second, 2}) {
		t.Errorf("%+v", got.Parts)
	}
	const want = `f.yaml:1:19: parts.p.wait: must be a duration with a unit, such as 500ms, 15m, 12h or 90d, not 3`
	if got := faults(t, "free: {x: &x {wait: 3}}\nparts: {p: *x}\n", new(file)); !strings.HasSuffix(got, strings.SplitN(want, ": ", 2)[1]) || !strings.HasPrefix(got, "f.yaml:1:21: ") {
		t.Error(got)
	}
}

// A part says where in the file it is.
func TestPart(t *testing.T) {
	d, err := yamldoc.Parse("f.yaml", []byte("a:\n  b:\n  - c: 1\n    d: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Elements("a", "b") != 1 || !d.Has("a", "b", "0", "d") || d.Has("a", "c") || d.Part("x") != nil {
		t.Error("the paths lead elsewhere")
	}
	part := d.Part("a", "b", "0")
	if diff := cmp.Diff([]string{"c", "d"}, part.Keys()); diff != "" {
		t.Error(diff)
	}
	if got := part.Fault("x", "", "d").Error(); got != "f.yaml:4:5: x" {
		t.Error(got)
	}
	if got := part.Fault("x", "", "e").Error(); got != "f.yaml:3:5: x" {
		t.Error(got)
	}
	var into struct {
		C string `yaml:"c"`
		D int    `yaml:"d"`
	}
	if got := yamldoc.Errors(part.Decode(&into)); got == nil || got.Error() != "f.yaml:3:8: a.b.0.c: must be text, not 1 (put it in quotes)" {
		t.Error(got)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "365d": 8760 * time.Hour,
		"1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "2.5s": 2500 * time.Millisecond, "106751d": 106751 * 24 * time.Hour,
	} {
		if got, err := yamldoc.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "365", "1", "-1s", "+1s", "1w", "1 d", "d", ".5s", "1s2", "106752d", "9e9d", "1d106751d", "99999999999999999999h", "１d"} {
		if got, err := yamldoc.ParseDuration(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// Whatever a file is, it is read or it is refused with a fault.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a: 1", "a: &a [*a]", "a: &a {b: c}\nd: *a", "? x\n: y", "- - -", "a: !!str 1", "a: |\n  b", "%YAML 1.2\n---\na: b", "<<: {a: b}", "{a: {<<: [x]}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := yamldoc.Parse("f.yaml", []byte(text))
		var fault yamldoc.Fault
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("%v is no Fault", err)
		}
		if err == nil {
			d.Decode(new(file))
			d.Decode(new(map[string]any))
		}
	})
}

// A byte order mark is refused by its name: no editor shows it.
func TestByteOrderMark(t *testing.T) {
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		want := "f.yaml:1:1: the file begins with a byte order mark (save it as UTF-8 without a byte order mark (BOM))"
		if got := faults(t, mark+"name: a\n", new(file)); got != want {
			t.Errorf("%q: %s, want %s", mark, got, want)
		}
	}
}

// A duration that there has to be some of is not 0, and who writes a key that
// stands for another is told what belongs there.
func TestTags(t *testing.T) {
	type key struct {
		Digest string        `yaml:"digest" instead:"key hash" hint:"the digest of the key"`
		TTL    time.Duration `yaml:"ttl" duration:"some"`
		Wait   time.Duration `yaml:"wait"`
	}
	want := `f.yaml:1:6: ttl: must be more than 0, not "0s" (leave the key out for the default)
f.yaml:3:1: unknown field "hash" (write digest, the digest of the key)
f.yaml:4:1: unknown field "digst" (did you mean "digest"?)`
	if diff := cmp.Diff(want, faults(t, "ttl: 0s\nwait: 0s\nhash: x\ndigst: x\n", new(key))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := faults(t, "ttl: 0\n", new(key)), "f.yaml:1:6: ttl: must be more than 0, not 0 (leave the key out for the default)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A setting of a part of a document is told by all its keys.
func TestSettingsOfAPart(t *testing.T) {
	d, err := yamldoc.Parse("f.yaml", []byte("maybe:\n  votes: many\n  wait: 3s\n"))
	if err != nil {
		t.Fatal(err)
	}
	part := d.Part("maybe")
	wrong := errors.Join(&yamldoc.SettingError{Path: []string{"wait"}, Reason: "must be less"}, &yamldoc.SettingError{Path: []string{"votes"}, Reason: "must be more"})
	want := "f.yaml:2:10: maybe.votes: must be a whole number, not \"many\"\nf.yaml:3:3: maybe.wait: must be less"
	got := yamldoc.Errors(part.Settings(part.Decode(new(struct {
		Votes int           `yaml:"votes"`
		Wait  time.Duration `yaml:"wait"`
	})), wrong))
	if got == nil || got.Error() != want {
		t.Errorf("%v, want %s", got, want)
	}
}
