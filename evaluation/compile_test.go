package evaluation_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/lint"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// faultsOf compiles a policy store and returns what is wrong with it, which must
// be Faults.
func faultsOf(t testing.TB, a snapshot.Archive) faults.List {
	t.Helper()
	s, err := snapshot.Compile(a)
	var found faults.List
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &found) || len(found) == 0:
		t.Errorf("the error is a %T: %v", err, err)
	case s != nil:
		t.Error("there is a snapshot beside the faults")
	}
	return found
}

// lines lists faults as a person reads them.
func lines(found faults.List) string {
	if len(found) == 0 {
		return ""
	}
	// The JSON package chooses one of two wordings for each run of a program.
	return strings.ReplaceAll(found.Error(), "json: unable to ", "json: cannot ") + "\n"
}

// TestFaults compiles the policy stores of testdata/faults. The file want of
// each lists its faults.
func TestFaults(t *testing.T) {
	eachStore(t, "testdata/faults/*.txtar", faultsOf)
}

// TestWarnings compiles the policy stores of testdata/warnings. The file want of
// each lists its warnings.
func TestWarnings(t *testing.T) {
	eachStore(t, "testdata/warnings/*.txtar", func(t testing.TB, store snapshot.Archive) faults.List {
		s, err := snapshot.CompileStore(store)
		if err != nil {
			t.Fatal(err)
		}
		return lint.Warnings(s)
	})
}

// eachStore compares what is wrong with each policy store with its file want.
func eachStore(t *testing.T, pattern string, wrong func(testing.TB, snapshot.Archive) faults.List) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal("no policy stores", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			parsed, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			store := snapshot.Archive{}
			for _, f := range parsed.Files {
				store[f.Name] = f.Data
			}
			want := string(store["want"])
			delete(store, "want")

			got := lines(wrong(t, store))
			if *update {
				parsed.Files[len(parsed.Files)-1].Data = []byte(got)
				err = os.WriteFile(file, txtar.Format(parsed), 0o644)
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What the text of a test could not show.
func TestFaultsOfBytes(t *testing.T) {
	const policy = `@id("p") permit (principal, action, resource) when { %s };`
	tests := []struct {
		name, file, text, want string
	}{
		{"a byte that is not UTF-8", "p.cedar",
			"@id(\"ü\")\npermit (principal, action, resource) when { \"\xff\" == \"\" };",
			"p.cedar: is not UTF-8 at byte 55\n"},
		{"a longer pattern", "p.cedar",
			fmt.Sprintf(policy, `resource.s like "`+strings.Repeat("*a", 128)+`*"`),
			"p.cedar:1:70: this pattern is longer than 256 bytes\n"},
		{"the longest pattern", "p.cedar",
			fmt.Sprintf(policy, `resource.s like "`+strings.Repeat("*a", 128)+`"`),
			""},
		{"a long string that is no pattern", "p.cedar",
			fmt.Sprintf(policy, `resource.s == "`+strings.Repeat("a", 1000)+`"`),
			""},
		{"a longer policy", "p.cedar",
			`@id("one") permit (principal, action, resource); ` + padded(policy, 64<<10+1),
			"p.cedar:1:50: this policy is longer than 65536 bytes (split it)\n"},
		{"the longest policy", "p.cedar",
			`@id("one") permit (principal, action, resource); ` + padded(policy, 64<<10),
			""},
		{"a path with a line break", "p\n.cedar",
			fmt.Sprintf(policy, "true"),
			`.: "p\n.cedar" cannot be the path of a file` + "\n"},
		{"entities that are not UTF-8", "entities.json",
			"[\n{\"uid\": {\"type\": \"user\", \"id\": \"\xff\"}, \"attrs\": {}, \"parents\": []}]",
			"entities.json:2:33: is not valid JSON: invalid UTF-8\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := lines(faultsOf(t, snapshot.Archive{test.file: []byte(test.text)}))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// padded is the policy with a string so long that it has n bytes.
func padded(policy string, n int) string {
	filled := fmt.Sprintf(policy, `"" == "`+strings.Repeat("x", n)+`"`)
	return strings.Replace(filled, strings.Repeat("x", len(filled)-n), "", 1)
}

// What a parser would take the process down with is a fault, and soon.
func TestFaultsOfHostileText(t *testing.T) {
	const n = 1 << 20
	tests := []struct {
		name, text, want string
	}{
		{"open parentheses", strings.Repeat("(", n), "brackets nest deeper than 64"},
		{"open brackets", strings.Repeat("[", n), "brackets nest deeper than 64"},
		{"nested parentheses", strings.Repeat("(", n/2) + "1" + strings.Repeat(")", n/2), "brackets nest deeper than 64"},
		{"records", strings.Repeat("{a:", n/3), "brackets nest deeper than 64"},
		{"negations", strings.Repeat("!", n) + "true", "more than 4 ! or - in a row"},
		{"minuses", strings.Repeat("- ", n/2) + "1 == 1", "more than 4 ! or - in a row"},
		{"minus five minuses", "5 ------1 == 6", "more than 4 ! or - in a row"},
		{"minuses behind a word", "if -----1 == 1 then true else false", "more than 4 ! or - in a row"},
		{"attributes", "context" + strings.Repeat(".a", n/2), "this policy is longer than 65536 bytes"},
		{"a has path", "context has a" + strings.Repeat(".a", n/2), "this has path names more than 16 attributes"},
		{"a has path that fits", "context has a" + strings.Repeat(".a", 30_000), "this has path names more than 16 attributes"},
		{"conditionals", strings.Repeat("if true then ", n/13), "this policy is longer than 65536 bytes"},
		{"a quote that never ends", `"` + strings.Repeat("a", n), "p.cedar"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := `@id("p") permit (principal, action, resource) when { ` + test.text + " };\n" +
				`@id("q") permit (principal, action, resource);`
			found := within(t, 20*time.Second, func() faults.List {
				return faultsOf(t, snapshot.Archive{"p.cedar": []byte(text)})
			})
			if !strings.Contains(lines(found), test.want) {
				t.Errorf("faults:\n%s\nwant one that says %s", lines(found), test.want)
			}
		})
	}
}

// What fits into one policy is compiled, and soon.
func TestCompileOfLongPolicies(t *testing.T) {
	const schema = "entity user { a?: Bool }; action read appliesTo { principal: [user], resource: [user] };"
	tests := []struct{ before, unit, after string }{
		{"context", ".a", ""},
		{"principal is A", "::A", ""},
		{"true", " || true", ""},
		{"1", " + 1", " == 1"},
		{"[1]", ".contains(1)", ""},
		{"[1", ", 1", "] == []"},
		{"", "if context has a then true else ", "true"},
		{"true", ` && "a" like "*a*a*a*"`, ""},
	}
	for _, test := range tests {
		repeated := strings.Repeat(test.unit, (64<<10-200)/len(test.unit))
		store := snapshot.Archive{"p.cedar": []byte(
			`@id("p") permit (principal, action, resource) when { ` + test.before + repeated + test.after + " };")}
		if found := within(t, 20*time.Second, func() faults.List { return faultsOf(t, store) }); found != nil {
			t.Errorf("%s: faults:\n%v", test.unit, found)
		}
		store["schema.cedarschema"] = []byte(schema)
		within(t, 20*time.Second, func() faults.List { return faultsOf(t, store) })
	}
}

// within fails the test when compiling takes longer than bound.
func within(t *testing.T, bound time.Duration, compile func() faults.List) faults.List {
	t.Helper()
	done := make(chan faults.List, 1)
	go func() { done <- compile() }()
	select {
	case found := <-done:
		return found
	case <-time.After(bound):
		t.Fatalf("still compiling after %v", bound)
		return nil
	}
}

// What a policy costs grows with its length: one call more is as much more as
// the one before it was.
func TestCompileCost(t *testing.T) {
	cost := func(expression, call string, n int) uint64 {
		text := `@id("p") permit (principal, action, resource) when { ` + expression + strings.Repeat(call, n) + ` == context.x };`
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if found := faultsOf(t, snapshot.Archive{"p.cedar": []byte(text)}); found != nil {
			t.Fatal(found)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	for _, call := range []string{
		".toDate()", ".offset(context.d)", ".durationSince(context.d)", ".toTime()", ".toMilliseconds()",
		".contains(1)", ".isIpv4()", ".lessThan(context.d)", `["a"]`, ".a", `.getTag("a")`, `.hasTag("a")`,
	} {
		once := cost("context.x", call, 1)
		if few, more := cost("context.x", call, 5)-once, cost("context.x", call, 10)-once; more > 10*few {
			t.Errorf("%s: ten calls cost %d allocations, five %d", call, more, few)
		}
	}
}

// Each fault has a line of its own, and begins with the file it is in.
func TestFaultsAreLines(t *testing.T) {
	place := regexp.MustCompile(`^[a-z]+\.(cedar|cedarschema|json|yaml)(:[1-9]\d*:[1-9]\d*)?: `)
	for line := range strings.Lines(lines(faultsOf(t, archive(unruly)))) {
		if !place.MatchString(line) {
			t.Errorf("a line that names no place: %s", line)
		}
	}
}

// unruly has faults wherever the order in which they are found might be left
// to chance.
const unruly = `
@id("a") @approvala("x") @approvalb("x") permit (principal, action, resource);
@id("b") permit (principal is usr, action == Action::"reed", resource is dok);
@id("c") permit (principal, action == Action::"read", resource) when { resource.x == resource.y };
-- config.yaml --
subject_types: ["c d", "a b"]
parents: {y: "y y", x: "x x"}
type_aliases: {w: "w w", v: "v v"}
-- entities.json --
[{"uid": {"type": "user", "id": "1"}, "attrs": {}, "parents": [{"type": "doc", "id": "1"}]},
 {"uid": {"type": "user", "id": "2"}, "attrs": {"a": 1}, "parents": []},
 {"uid": {"type": "user", "id": "3"}, "attrs": {}, "parents": [{"type": "user", "id": "4"}]},
 {"uid": {"type": "user", "id": "4"}, "attrs": {}, "parents": [{"type": "user", "id": "3"}]}]
-- schema.cedarschema --
entity user in [user] { a?: String, b?: String, c?: String };
entity doc;
action read appliesTo { principal: [user], resource: [doc] };
`

func TestFaultsAreTheSameEveryTime(t *testing.T) {
	tests := map[string]string{
		"policies, configuration and entities": unruly,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			first := lines(faultsOf(t, archive(text)))
			for range 100 {
				if diff := cmp.Diff(first, lines(faultsOf(t, archive(text)))); diff != "" {
					t.Fatalf("faults of the same policy store (-once +again):\n%s", diff)
				}
			}
		})
	}
}

// What only looks like a fault is none.
func TestCompileAccepts(t *testing.T) {
	tests := map[string]string{
		"nothing":                       "",
		"comments alone":                "// nothing yet\n-- config.yaml --\n# nothing yet\n",
		"empty files":                   "-- a.cedar --\n-- config.yaml --\n-- entities.json --\n",
		"no entities":                   "-- entities.json --\n [ ]\n",
		"a condition on an earlier one": `@id("a") permit (principal, action, resource) when { principal has x } when { principal.x == 1 };`,
		"delimiters in strings":         `@id("a") @note("\"; } /* // ") permit (principal, action, resource) when { "};" != "/*" };`,
		"many policies on a line":       `@id("a") permit (principal, action, resource);@id("b") forbid (principal, action, resource);`,
		"Windows lines":                 "@id(\"a\")\r\npermit (principal, action, resource) // x\r\nwhen { true };\r\n",
		"not equal to a negation":       `@id("a") permit (principal, action, resource) when { true != !!!!false };`,
		"minus four minuses":            `@id("a") permit (principal, action, resource) when { 5-----1 == 4 || context.n - ----1 == 0 || (5) - ----1 == 4 };`,
		"an annotation named like":      `@id("a") @like("` + strings.Repeat("x", 300) + `") permit (principal, action, resource);`,
		"a has that an access follows":  `@id("a") permit (principal, action, resource) when { if context has a then context.a.b.c.d.e.f.g.h.i.j.k.l.m.n.o == 1 else false };`,
		"an attribute named by keyword": `@id("a") permit (principal, action, resource) when { resource["has"] == resource["like"] };`,
		"a string that reads __expr":    "-- entities.json --\n" + `[{"uid": {"type": "doc", "id": "1"}, "attrs": {"name": "__expr"}, "parents": []}]`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if found := faultsOf(t, archive(text)); found != nil {
				t.Errorf("faults:\n%v", found)
			}
		})
	}
}

func TestNoPoliciesDenyEverything(t *testing.T) {
	s := compile(t, "")
	s.denies("user alice", "read", "doc 1")
	if policies, entities := s.Size(); policies != 0 || entities != 0 {
		t.Errorf("there are %d policies and %d entities", policies, entities)
	}
}

func TestSchemaForms(t *testing.T) {
	const policy = `@id("owner") permit (principal, action, resource) when { principal == resource.owner };`
	forms := map[string]string{
		"cedar": policy + `
-- schema.cedarschema --
entity user;
entity doc { owner: user };
action read appliesTo { principal: [user], resource: [doc] };
`,
		"json": policy + `
-- schema.json --
{"": {
  "entityTypes": {
    "user": {},
    "doc": {"shape": {"type": "Record", "attributes": {"owner": {"type": "Entity", "name": "user"}}}}
  },
  "actions": {"read": {"appliesTo": {"principalTypes": ["user"], "resourceTypes": ["doc"]}}}
}}
`,
	}
	for name, text := range forms {
		t.Run(name, func(t *testing.T) {
			s := compile(t, text)
			s.allows(`user alice`, `read`, `doc 1 {"owner":"alice"}`)
			s.denies(`user bob`, `read`, `doc 1 {"owner":"alice"}`)
			s.refuses(`/resource/properties/owner must be a user entity: its id, or {"type","id"}`,
				`user bob`, `read`, `doc 1 {"owner":1}`)
		})
	}
}

// A revision names what was compiled, to the byte.
func TestRevision(t *testing.T) {
	store := archive(`
@id("a") permit (principal, action, resource);
-- config.yaml --
clock: now
-- entities.json --
[]
-- schema.cedarschema --
entity user; action read appliesTo { principal: [user], resource: [user] };
`)
	revision := func(a snapshot.Archive) string {
		t.Helper()
		s, err := snapshot.Compile(a)
		if err != nil {
			t.Fatal(err)
		}
		return s.Revision()
	}
	first := revision(store)
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(first) {
		t.Errorf("the revision is %q", first)
	}
	if again := revision(maps.Clone(store)); again != first {
		t.Errorf("the revision of the same files is %s and %s", first, again)
	}
	seen := map[string]string{first: "the store as it was"}
	differs := func(what string, a snapshot.Archive) {
		t.Helper()
		got := revision(a)
		if other, ok := seen[got]; ok {
			t.Errorf("%s has the revision of %s", what, other)
		}
		seen[got] = what
	}
	for name, text := range store {
		differs("a space behind "+name, with(store, name, string(text)+" "))
	}
	renamed := with(store, "renamed.cedar", string(store["policies.cedar"]))
	delete(renamed, "policies.cedar")
	differs("a renamed file", renamed)
	differs("an empty file more", with(store, "empty.cedar", ""))
	differs("a comment", with(store, "policies.cedar", "// "+string(store["policies.cedar"])))
}

// with is the store with a file more, or another text of it.
func with(a snapshot.Archive, name, text string) snapshot.Archive {
	a = maps.Clone(a)
	a[name] = []byte(text)
	return a
}

// What has decided can be read again, whatever is refused today.
func TestCompileLogged(t *testing.T) {
	once := archive(`
@id("a") @Approval("sre") permit (principal, action == Action::"read", resource is user);
@id("b") @requestable("two-persn") forbid (principal, action == Action::"read", resource);
-- config.yaml --
approval_templates: {two-person: {quorum: 2}}
-- schema.cedarschema --
entity Colour enum ["red", "blue",];
entity user;
action read appliesTo {principal: user, resource: user};
`)
	if _, err := snapshot.CompileLogged(once); err != nil {
		t.Error(err)
	}
	if _, err := snapshot.CompileStore(once); err == nil {
		t.Error("it is not refused today")
	}
}
