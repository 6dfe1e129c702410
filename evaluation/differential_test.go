package evaluation_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/policy-service/policy-service/conformance/external"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	differentialCases = flag.Int("differential.n", 300, "how many cases to put to the official engine")
	differentialSeed  = flag.Uint64("differential.seed", 1, "seed of the cases")
	differentialFrom  = flag.Int("differential.from", 0, "first of the cases")
)

// oracleCases is how many cases one process of the official engine answers:
// node does not outlive long runs.
const oracleCases = 200

// TestDifferential puts random policy stores and requests to this package and
// to the official engine. Both must accept the same stores and requests and
// decide them alike: same decision, same determining policies, same policies
// in error.
func TestDifferential(t *testing.T) {
	script := oracle(t)
	r := report{counts: map[string]int{}, known: map[string]int{}, used: map[string]int{}}
	start, end := time.Now(), *differentialFrom+*differentialCases
	for from := *differentialFrom; from < end; from += oracleCases {
		cases := newTrials(*differentialSeed, from, min(from+oracleCases, end))
		for i, official := range askOracle(t, script, cases) {
			r.add(t, cases[i], official)
		}
	}
	t.Logf("seed %d, %d cases from %d in %v\n%s", *differentialSeed, *differentialCases, *differentialFrom, time.Since(start).Round(time.Second), &r)
	if *differentialCases < 300 {
		return
	}
	for _, operator := range r.unused() {
		t.Errorf("no case uses %s", operator)
	}
}

// TestDifferentialNotices is the control: the official engine is given other
// policies than ours, and the comparison must notice.
func TestDifferentialNotices(t *testing.T) {
	script := oracle(t)
	edits := [][2]string{{"permit", "forbid"}, {"when", "unless"}, {"&&", "||"}, {" < ", " >= "}, {" in ", " == "}}
	cases := newTrials(*differentialSeed, 0, 40*len(edits))
	for i, c := range cases {
		for id, text := range c.Policies {
			c.Policies[id] = strings.ReplaceAll(text, edits[i%len(edits)][0], edits[i%len(edits)][1])
		}
	}
	noticed := make([]int, len(edits))
	for i, official := range askOracle(t, script, cases) {
		ours, _ := cases[i].ours()
		if !cmp.Equal(official, ours, sameAnswers) {
			noticed[i%len(edits)]++
		}
	}
	for i, edit := range edits {
		t.Logf("%q for %q: noticed in %d of 40 cases", edit[1], edit[0], noticed[i])
		if noticed[i] == 0 {
			t.Errorf("%q for %q goes unnoticed", edit[1], edit[0])
		}
	}
}

// directed are expressions in which cedar-go differs from the official engine,
// or did; each is the condition of a permit.
var directed = []string{
	`context.t.toDate() == datetime("1969-07-20")`,
	`datetime("1969-07-20T20:17:40Z").toDate() == datetime("1969-07-20")`,
	`datetime("1969-07-20").toDate() == datetime("1969-07-20")`,
	`datetime("1969-12-31T23:59:59.999Z").toDate() == datetime("1969-12-31")`,
	`datetime("1970-01-01").toDate() == datetime("1970-01-01")`,
	`datetime("2024-02-29T12:00:00Z").toDate().toDate() == datetime("2024-02-29")`,
	`context.t.toTime() == duration("20h17m40s")`,
	`datetime("1969-07-20").toTime() == duration("0ms")`,
	`datetime("1969-12-31T23:59:59.999Z").toTime() == duration("23h59m59s999ms")`,
	`datetime("1970-01-01").offset(duration("-9223372036854775807ms")).toTime() == duration("1h")`,
	`datetime("1970-01-01").offset(duration("9223372036854775807ms")).toTime() < duration("1d")`,
	`datetime("1970-01-01").offset(context.t.toTime()).offset(context.t.toTime()).toTime() > duration("1h")`,
	`context.t.toDate().durationSince(datetime("1970-01-01")).toDays() == -165`,
	`(if context.t.toDate() == datetime("1969-07-20") then {r: {b: true}} else {x: 1}) has r.b`,
	`(if datetime("2024-02-29T12:00:00Z").toDate() == datetime("2024-02-29") then {r: {b: {c: 1}}} else {x: 1}) has r.b.c`,
	`(if context.t.toTime() == duration("20h17m40s") then {r: {b: true}} else {x: 1}) has r.b`,
	`(if decimal(context.s).lessThan(decimal("9.0")) then {r: {b: true}} else {x: 1}) has r.b`,
	`1.toDate() == context.t`, `"1970-01-01".toTime() == duration("1h")`, `context.nothing.toDate() == context.t`,
	`decimal("+1.0") == decimal("1.0")`, `decimal(context.s) == decimal("1.0")`, `decimal(if context.t < datetime("1970-01-01") then "+1.0" else "1.0") == decimal("1.0")`,
	`decimal("1.+0") == decimal("1.0")`, `decimal(1) == decimal("1.0")`, `decimal("-+1.0") == decimal("-1.0")`,
	`5-----1 == 4`, `context["t"]-----1 == 4`,
}

// TestDifferentialDirected puts those to both engines.
func TestDifferentialDirected(t *testing.T) {
	c := &trial{
		name: "directed", Policies: map[string]string{}, Entities: jsontext.Value("[]"),
		archive: snapshot.Archive{"config.yaml": []byte("{on_policy_error: skip, attributes: {context.t: datetime}}")},
		requests: []*authzen.EvaluationRequest{{Subject: authzen.Subject{Type: "User", ID: "a"}, Action: authzen.Action{Name: "read"}, Resource: authzen.Resource{Type: "Doc", ID: "d"},
			Context: jsontext.Value(`{"t":"1969-07-20T20:17:40Z","s":"+1.0"}`)}},
		Requests: []officialRequest{{uid{"User", "a"}, uid{"Action", "read"}, uid{"Doc", "d"},
			jsontext.Value(`{"t":{"__extn":{"fn":"datetime","arg":"1969-07-20T20:17:40Z"}},"s":"+1.0"}`), jsontext.Value("[]")}},
	}
	for i, expression := range directed {
		id := fmt.Sprintf("p%02d", i)
		c.Policies[id] = fmt.Sprintf("@id(%q) permit (principal, action, resource) when { %s };", id, expression)
		c.archive[id+".cedar"] = []byte(c.Policies[id])
	}
	official := askOracle(t, oracle(t), []*trial{c})[0]
	if ours, _ := c.ours(); !cmp.Equal(official, ours, sameAnswers) {
		t.Errorf("-official +ours:\n%s\n%s", cmp.Diff(official, ours, sameAnswers), c.describe(ours, official))
	}
}

// oracle installs the official engine, and returns the path of the script that
// asks it.
func oracle(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("testdata", "oracle")
	external.Packages(t, dir)
	return filepath.Join(dir, "oracle.js")
}

// askOracle puts cases to one process of the official engine.
func askOracle(t *testing.T, script string, cases []*trial) []answers {
	t.Helper()
	var lines bytes.Buffer
	for _, c := range cases {
		if err := json.MarshalWrite(&lines, c); err != nil {
			t.Fatal(err)
		}
		lines.WriteByte('\n')
	}
	node := exec.Command("node", script)
	node.Stdin, node.Stderr = &lines, os.Stderr
	out, err := node.Output()
	if err != nil {
		t.Fatalf("official engine: %v after %d cases of %d from %s", err, bytes.Count(out, []byte("\n")), len(cases), cases[0].name)
	}
	var all []answers
	for line := range bytes.Lines(out) {
		var a answers
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("official engine: %v: %s", err, line)
		}
		all = append(all, a)
	}
	if len(all) != len(cases) {
		t.Fatalf("official engine: %d answers to %d cases from %s", len(all), len(cases), cases[0].name)
	}
	return all
}

// answers are what an engine says to a case.
type answers struct {
	Fault   string   `json:"fault"` // why the store was not accepted, or ""
	Answers []answer `json:"answers"`
}

type answer struct {
	Fault    string   `json:"fault"` // why the request was not accepted, or ""
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons"`
	Errors   []string `json:"errors"`

	overflowed map[string]bool // of our errors
}

// sameAnswers compares what must be the same: that there is a fault, not what
// it says; which policies, not their order.
var sameAnswers = cmp.Options{
	cmpopts.IgnoreUnexported(answer{}),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Fault" },
		cmp.Comparer(func(a, b string) bool { return (a == "") == (b == "") })),
	cmp.Transformer("sorted", func(s []string) string { return strings.Join(slices.Sorted(slices.Values(s)), " ") }),
}

// A trial is a policy store and the requests it is asked. What has a JSON name
// is its form for the official engine.
type trial struct {
	Policies map[string]string `json:"policies"`
	Schema   any               `json:"schema,omitzero"` // text, or a jsontext.Value
	Entities jsontext.Value    `json:"entities"`
	Requests []officialRequest `json:"requests"`

	name     string
	archive  snapshot.Archive
	requests []*authzen.EvaluationRequest
	used     map[string]int // productions of the grammar
}

type officialRequest struct {
	Principal uid            `json:"principal"`
	Action    uid            `json:"action"`
	Resource  uid            `json:"resource"`
	Context   jsontext.Value `json:"context"`
	Entities  jsontext.Value `json:"entities"`
}

// trialTime is when every decision is made: before 1970, where the official
// engine and cedar-go divide time otherwise.
var trialTime = time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC)

// ours asks this package.
func (c *trial) ours() (answers, faults.List) {
	s, err := snapshot.Compile(c.archive)
	if err != nil {
		var found faults.List
		errors.As(err, &found)
		return answers{Fault: err.Error()}, found
	}
	var out answers
	for _, r := range c.requests {
		out.Answers = append(out.Answers, decide(s, r))
	}
	return out, nil
}

func decide(s *snapshot.Snapshot, r *authzen.EvaluationRequest) answer {
	outcome, err := s.Decide(r, snapshot.Environment{Time: trialTime})
	if err != nil {
		return answer{Fault: err.Error()}
	}
	a := answer{Decision: "deny", Reasons: outcome.Policies, overflowed: map[string]bool{}}
	if outcome.Decision {
		a.Decision = "allow"
	}
	for _, e := range outcome.Errors {
		if e.Policy == "" {
			return answer{Fault: e.Message}
		}
		a.Errors = append(a.Errors, e.Policy)
		a.overflowed[e.Policy] = strings.Contains(e.Message, "overflow")
	}
	return a
}

// describe shows a trial as files, and the requests that are answered
// differently.
func (c *trial) describe(ours, official answers) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.archive)) {
		fmt.Fprintf(&b, "-- %s --\n%s\n", name, c.archive[name])
	}
	fmt.Fprintf(&b, "official: %s\nours: %s\n", official.Fault, ours.Fault)
	for i := range min(len(ours.Answers), len(official.Answers)) {
		if cmp.Equal(official.Answers[i], ours.Answers[i], sameAnswers) {
			continue
		}
		request, err := json.Marshal(c.requests[i])
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "-- request %d --\n%s\nofficial: %+v\nours: %+v\n", i, request, official.Answers[i], ours.Answers[i])
	}
	return b.String()
}

// A divergence is a known difference between the engines: a fault of ours in a
// store that the official engine accepts.
type divergence struct {
	what  string
	says  *regexp.Regexp // the fault
	wrote *regexp.Regexp // some policy
}

var divergences = []divergence{
	{
		"a negative number needs brackets before a point or a bracket",
		regexp.MustCompile(`^does not parse: `), regexp.MustCompile(`-\s*\d+\s*[.[]`),
	},
	{
		"white space is space, tab, line feed and carriage return, not all that Unicode has",
		regexp.MustCompile(`^does not parse: `), regexp.MustCompile("[\f\v\u00a0\u2028]"),
	},
	{
		"a string ends on the line it begins on",
		regexp.MustCompile(`^does not parse: (?:literal not terminated|unexpected effect)`), regexp.MustCompile(`"[^"\n]*\n[^"]*"`),
	},
	{
		"no entity may be there twice, not even as the same",
		regexp.MustCompile(` is there twice$`), regexp.MustCompile(``),
	},
	{
		"a policy that applies to no action of the schema is a fault; the official engine warns",
		regexp.MustCompile(`unable to find an applicable action`), regexp.MustCompile(``),
	},
	{
		"a policy that applies to no action of the schema, because it names none, is a fault",
		regexp.MustCompile(`empty set literals are forbidden in policies$`), regexp.MustCompile(`action in \[\]`),
	},
	{
		"no has path stands behind brackets that hold another",
		regexp.MustCompile(`^a has path behind brackets`), regexp.MustCompile(`[)}]\S* has \w+\s*\.`),
	},
	{
		"decimal() has no decimal() in its argument",
		regexp.MustCompile(`^decimal\(\) inside the argument of decimal\(\)$`), regexp.MustCompile(`decimal\(.*decimal\(`),
	},
	{
		"both branches of if must be of one type; the official engine leaves out one that its condition closes",
		regexp.MustCompile(`the types .* are not compatible$`), regexp.MustCompile(`\bif\b`),
	},
	{
		"what an extension cannot read is a fault also where it is never evaluated",
		regexp.MustCompile(`error during extension function argument validation: |a decimal has no plus sign$`), regexp.MustCompile(`\bif\b|&&|\|\|`),
	},
	{
		"a comment has no carriage return within its line",
		regexp.MustCompile(`^there is a carriage return in this comment$`), regexp.MustCompile("//[^\n]*\r[^\n]"),
	},
}

// explain returns the divergence that a fault of the case is, or "".
func (c *trial) explain(f faults.Fault) string {
	for _, d := range divergences {
		if d.says.MatchString(f.Message) && slices.ContainsFunc(slices.Collect(maps.Values(c.Policies)), d.wrote.MatchString) {
			return d.what
		}
	}
	return ""
}

// mixedTimes is the divergence that accepts more: with a schema, a number, a
// datetime and a duration may be compared, which is an error of every request
// then.
const mixedTimes = "with a schema, a comparison of a number, a datetime or a duration with another is accepted"

var saysMixedTimes = regexp.MustCompile(`^(?:for policy .p\d., unexpected type: expected (?:Long|datetime|duration) but saw (?:Long|datetime|duration)(?:; |$))+$`)

// distant is the divergence that changes answers: a date more than 146 million
// years from 1970 has no toDate, which is an error.
const distant = "toDate of a date more than 146 million years from 1970 is an error"

// isDistant reports whether all that differs in the answers to a case is that
// policies err in toDate here.
func (c *trial) isDistant(ours, official answers) bool {
	for i := range ours.Answers {
		got, want := ours.Answers[i], official.Answers[i]
		if cmp.Equal(want, got, sameAnswers) {
			continue
		}
		more := without(got.Errors, want.Errors)
		if len(more) == 0 || len(without(want.Errors, got.Errors)) > 0 ||
			slices.ContainsFunc(more, func(id string) bool { return !got.overflowed[id] || !strings.Contains(c.Policies[id], ".toDate()") }) {
			return false
		}
	}
	return true
}

// without returns the ids that are not among others.
func without(ids, others []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(others, id) })
}

// A report counts what a run has seen.
type report struct {
	counts map[string]int
	known  map[string]int // divergences
	used   map[string]int // productions
}

// add compares the answers to one case.
func (r *report) add(t *testing.T, c *trial, official answers) {
	t.Helper()
	r.count(c, official)
	ours, found := c.ours()
	if cmp.Equal(official, ours, sameAnswers) {
		return
	}
	switch {
	case official.Fault == "" && len(found) > 0 && r.explained(c, found):
		return
	case ours.Fault == "" && saysMixedTimes.MatchString(official.Fault):
		r.known[mixedTimes]++
		return
	case official.Fault == "" && ours.Fault == "" && c.isDistant(ours, official):
		r.known[distant]++
		return
	}
	if r.counts["mismatches"]++; r.counts["mismatches"] > 10 {
		t.Errorf("%s", c.name)
		return
	}
	t.Errorf("%s (-official +ours):\n%s\n%s", c.name, cmp.Diff(official, ours, sameAnswers), c.describe(ours, official))
}

// explained counts the divergences that explain all faults of a case.
func (r *report) explained(c *trial, found faults.List) bool {
	for _, f := range found {
		what := c.explain(f)
		if what == "" {
			return false
		}
		r.known[what]++
	}
	return true
}

func (r *report) count(c *trial, a answers) {
	for production, n := range c.used {
		r.used[production] += n
	}
	with := ""
	if c.Schema != nil {
		with = " with a schema"
	}
	if a.Fault != "" {
		r.counts["stores refused"+with]++
		return
	}
	r.counts["stores accepted"+with]++
	for _, answer := range a.Answers {
		if answer.Fault != "" {
			r.counts["requests refused"+with]++
			continue
		}
		r.counts["requests "+answer.Decision]++
		if len(answer.Errors) > 0 {
			r.counts["requests with errors"]++
		}
		if len(answer.Reasons)+len(answer.Errors) > 1 {
			r.counts["requests with several policies"]++
		}
	}
}

func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d mismatches\n", r.counts["mismatches"])
	for _, m := range []map[string]int{r.counts, r.known, operatorsIn(r.used)} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(&b, "%8d %s\n", m[name], name)
		}
	}
	return b.String()
}

// unused lists the operators of the grammar that no case had.
func (r *report) unused() []string {
	used := operatorsIn(r.used)
	var missing []string
	for operator := range operatorsIn(productionsOnce()) {
		if used[operator] == 0 {
			missing = append(missing, operator)
		}
	}
	return slices.Sorted(slices.Values(missing))
}

var (
	stringLiteral = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	operator      = regexp.MustCompile(`\b(?:if|has|like|is|in)\b|\.?\w+\(|\.|&&|\|\||[=!<>]=|[-+*!<>]|[[{]`)
)

// operatorsIn adds up uses of productions by operator.
func operatorsIn(productions map[string]int) map[string]int {
	out := map[string]int{}
	for production, n := range productions {
		for _, o := range operator.FindAllString(stringLiteral.ReplaceAllString(production, "_"), -1) {
			out[strings.TrimSuffix(o, "(")] += n
		}
	}
	return out
}

func productionsOnce() map[string]int {
	all := map[string]int{}
	for _, p := range grammar {
		for _, production := range slices.Concat(p.leaves, p.compounds) {
			all[production]++
		}
	}
	return all
}

// uid names an entity.
type uid struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// A value is a Cedar value in all the forms that a case needs.
type value struct {
	kind   string // a name of the grammar
	text   string // of a scalar: JSON, an id, or the argument of a constructor
	set    []value
	record map[string]value
	wrong  bool // not what its kind or its attribute asks for
}

// extensions are the constructors of the kinds that have one.
var extensions = map[string]string{"Decimal": "decimal", "IP": "ip", "Datetime": "datetime", "Duration": "duration"}

// unsaid reports the kinds that JSON alone cannot say.
func unsaid(kind string) bool { return extensions[kind] != "" || kind == "User" || kind == "Color" }

// stored returns the value in Cedar's JSON form.
func (v value) stored() string {
	if constructor, ok := extensions[v.kind]; ok {
		return fmt.Sprintf(`{"__extn":{"fn":%q,"arg":%s}}`, constructor, quote(v.text))
	}
	if unsaid(v.kind) {
		return fmt.Sprintf(`{"__entity":{"type":%q,"id":%s}}`, v.kind, quote(v.text))
	}
	return v.json(value.stored)
}

// json writes a value of a kind that JSON has.
func (v value) json(form func(value) string) string {
	switch v.kind {
	case "Record":
		return object(v.record, form)
	case "Longs", "Strings":
		elements := make([]string, len(v.set))
		for i, e := range v.set {
			elements[i] = form(e)
		}
		return "[" + strings.Join(elements, ",") + "]"
	case "String":
		return quote(v.text)
	}
	return v.text
}

func object(members map[string]value, form func(value) string) string {
	parts := make([]string, 0, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		parts = append(parts, quote(name)+":"+form(members[name]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func quote(s string) string {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// productions are the expressions of a type: leaves, and compounds with $
// before the types of their parts. What begins with ~ is not well-typed, or a
// strict validator cannot tell.
type productions struct{ leaves, compounds []string }

var grammar = map[string]productions{
	"Bool": {
		[]string{
			`true`, `false`, `principal.b`, `resource.b`, `context.b`, `context.r.r.b`, `principal is User`, `resource is Doc`,
			`principal in Group::"g0"`, `resource in Folder::"f1"`, `action in Action::"all"`, `principal == User::"u0"`, `action == Action::"read"`,
			`principal in [Group::"g1", User::"u1"]`, `User::"u0" == principal`, `principal is User in Group::"g2"`, `resource == principal`,
			`principal has s`, `context has n`, `context has r.r.b`, `principal has e.e.n`, `context has action && context.action.n > 0`,
			`~principal is Group`, `~principal is NS::Thing`, `~resource has "odd name"`, `~context has nothing`, `~"" == context`, `~principal.groups.contains("g0")`,
		},
		[]string{
			`$Bool && $Bool`, `$Bool || $Bool`, `!$Bool`, `!!$Bool`, `!!!!$Bool`, `if $Bool then $Bool else $Bool`,
			`$Long == $Long`, `$Long != $Long`, `$Long < $Long`, `$Long <= $Long`, `$Long > $Long`, `$Long >= $Long`,
			`$String == $String`, `$User == $User`, `$Color == $Color`, `$Record == $Record`, `$Longs == $Longs`, `$Strings != $Strings`,
			`$Decimal == $Decimal`, `$IP == $IP`, `$Datetime == $Datetime`, `$Duration == $Duration`, `~$Any == $Any`, `~$Any != $Any`,
			`$Datetime < $Datetime`, `$Datetime <= $Datetime`, `$Datetime > $Datetime`, `$Datetime >= $Datetime`,
			`$Duration < $Duration`, `$Duration <= $Duration`, `$Duration > $Duration`, `$Duration >= $Duration`, `~$Any < $Any`,
			`$User in $Group`, `$User in $User`, `$User in [$Group, $Group]`, `~$User in [$User, $Group]`, `~$User in []`, `~$User in $Strings`,
			`$User is User`, `$User is User in $Group`, `~$User is Group`, `~$User is User in [$Group, $User]`, `~$User is NS::Thing in $User`,
			`$Longs.contains($Long)`, `$Strings.contains($String)`, `[$Longs, $Longs].contains($Longs)`, `~[$Any, $Any].contains($Any)`,
			`$Longs.containsAll($Longs)`, `$Strings.containsAll($Strings)`, `$Longs.containsAny($Longs)`, `$Strings.containsAny($Strings)`,
			`$Longs.isEmpty()`, `$Strings.isEmpty()`, `~[$User, $Any].containsAny([$User, $User])`, `$String like $Pattern`,
			`$Record has n`, `$Record has "s"`, `$Record has r.b`, `$User has e.r.r.b`, `~$User has nothing`, `~$Any has n`,
			`$User.hasTag($String)`, `principal.hasTag("s") && principal.getTag("s") == $String`, `~$Any.hasTag($String)`,
			`$Decimal.lessThan($Decimal)`, `$Decimal.lessThanOrEqual($Decimal)`, `$Decimal.greaterThan($Decimal)`, `$Decimal.greaterThanOrEqual($Decimal)`,
			`$IP.isIpv4()`, `$IP.isIpv6()`, `$IP.isLoopback()`, `$IP.isMulticast()`, `$IP.isInRange($IP)`,
			`$Record.r.b`, `$Record["r"]["b"]`, `$User.b`,
		},
	},
	"Long": {
		[]string{`0`, `1`, `-1`, `2`, `-2`, `7`, `principal.n`, `resource.n`, `context.n`, `context.r.n`, `9223372036854775807`, `-9223372036854775808`, `4611686018427387904`, `~context.action.n`},
		[]string{
			`$Long + $Long`, `$Long - $Long`, `$Long * $Long`, `-$Long`, `--$Long`, `if $Bool then $Long else $Long`,
			`$Record.n`, `$Record["n"]`, `$User.n`, `{x: $Long, y: $Bool}.x`, `~$User.getTag("n")`,
			`$Duration.toMilliseconds()`, `$Duration.toSeconds()`, `$Duration.toMinutes()`, `$Duration.toHours()`, `$Duration.toDays()`,
		},
	},
	"String": {
		[]string{
			`"a"`, `""`, `"u0"`, `"s"`, `"A\u{308}b"`, `"\"\\\n\t\r\0\x41\u{1F600}\'"`, `"*"`, `"a*b"`, `"ü😀"`, `"__entity"`,
			`principal.s`, `resource.s`, `context.s`, `context.r.s`, `principal["odd name"]`, `context["odd name"]`,
		},
		[]string{`if $Bool then $String else $String`, `$Record.s`, `$User.s`, `~$User.getTag("s")`, `~$User.getTag($String)`},
	},
	"Pattern": {[]string{`"*"`, `""`, `"a*"`, `"*a"`, `"*\**"`, `"a\*b"`, `"*ü*"`, `"*\u{1F600}"`, `"*\"*\\*"`, `"u*0"`, `"**a**"`, `"\x41*"`, `"+*"`}, nil},
	"User": {
		[]string{`principal`, `principal`, `principal.e`, `context.e`, `resource.e`, `User::"u0"`, `User::"u1"`, `User::"absent"`, `~action`, `~resource`},
		[]string{`if $Bool then $User else $User`, `$User.e`, `~$Record.e`},
	},
	"Group":   {[]string{`Group::"g0"`, `Group::"g1"`, `Group::"g2"`, `Group::"absent"`, `~principal`, `~resource`}, []string{`if $Bool then $Group else $Group`}},
	"Color":   {[]string{`Color::"red"`, `Color::"blue"`, `principal.c`, `context.c`, `~Color::"green"`}, nil},
	"Longs":   {[]string{`[1]`, `[1, 2, 2]`, `[0, -1, 9007199254740993]`, `principal.ns`, `context.ns`, `~[]`}, []string{`[$Long, $Long]`, `[$Long]`, `if $Bool then $Longs else $Longs`, `$User.ns`, `~[$Long, $Any]`}},
	"Strings": {[]string{`["a"]`, `["a", "b", ""]`, `principal.ss`, `context.ss`, `~[]`}, []string{`[$String, $String]`, `[$String]`, `if $Bool then $Strings else $Strings`, `$User.ss`, `~[$Any]`}},
	"Record": {
		[]string{`principal.r`, `context.r`, `resource.r`, `{n: 1, s: "a", r: {b: true}}`, `~{}`, `~context`, `~{n: 1}`},
		[]string{`{n: $Long, s: $String, r: {b: $Bool}}`, `{"r": {"b": $Bool}, "n": $Long, "s": $String}`, `if $Bool then $Record else $Record`, `$User.r`, `~{n: $Any, e: $User}`},
	},
	"Decimal": {
		[]string{
			`decimal("1.5")`, `decimal("-0.0001")`, `decimal("0.0")`, `decimal("922337203685477.5807")`, `decimal("-922337203685477.5808")`, `decimal("00.10")`, `decimal("-0.0")`,
			`principal.d`, `context.d`, `resource.d`,
			`~decimal("+1.0")`, `~decimal("1.+5")`, `~decimal("+")`, `~decimal("1")`, `~decimal("1.")`, `~decimal(".5")`, `~decimal("1.00000")`, `~decimal("--1.0")`, `~decimal(" 1.0")`, `~decimal("1.0\n")`,
			`~decimal("922337203685477.5808")`, `~decimal("1e5.0")`, `~decimal("٣.0")`, `~decimal("0x1.0")`, `~decimal("-.5")`, `~decimal("1_0.0")`, `~decimal("-+1.0")`, `~decimal("")`, `~decimal()`,
		},
		[]string{`if $Bool then $Decimal else $Decimal`, `$User.d`, `~decimal($DecimalText)`, `~decimal($String)`},
	},
	"DecimalText": {[]string{`"+1.0"`, `"1.5"`, `"+0.0001"`, `"-1.5"`, `context.s`, `principal.s`}, []string{`if $Bool then $DecimalText else $DecimalText`}},
	"IP": {
		[]string{
			`ip("127.0.0.1")`, `ip("10.0.0.0/8")`, `ip("10.1.2.3")`, `ip("::1")`, `ip("ff00::/8")`, `ip("224.0.0.1")`, `ip("0.0.0.0/0")`, `ip("::/0")`, `ip("::ffff:a01:203")`,
			`principal.ip`, `context.ip`, `resource.ip`,
			`~ip("::ffff:10.1.2.3")`, `~ip("127.0.0.1/33")`, `~ip("1.2.3")`, `~ip("01.2.3.4")`, `~ip("1.2.3.4/08")`, `~ip("fe80::1%eth0")`, `~ip("1.2.3.4/")`, `~ip("[::1]")`, `~ip("::1/129")`, `~ip("")`, `~ip(" ::1")`,
			`~ip("1.2.3.4/+8")`, `~ip("::ffff:0:0/96")`, `~ip("1:2:3:4:5:6:7::")`, `~ip("::127.0.0.1")`, `~ip("1.2.3.4.5")`, `~ip("256.0.0.1")`, `~ip("::g")`, `~ip("1.2.3.4", 1)`,
		},
		[]string{`if $Bool then $IP else $IP`, `$User.ip`, `~ip($String)`},
	},
	"Datetime": {
		[]string{
			`datetime("1970-01-01")`, `datetime("1969-12-31T23:59:59.999Z")`, `datetime("1969-12-31")`, `datetime("2024-02-29")`, `datetime("2024-01-01T12:30:00+0100")`, `datetime("1960-06-15T12:30:00.001-0330")`,
			`datetime("9999-12-31T23:59:59.999-2359")`, `datetime("0000-01-01")`, `principal.t`, `context.t`, `resource.t`, `context.now`,
			`datetime("1970-01-01").offset(duration("9223372036854775807ms"))`, `datetime("1970-01-01").offset(duration("-9223372036854775807ms"))`,
			`datetime("1970-01-01").offset(duration("-9223372036828800000ms"))`, `datetime("1970-01-01").offset(duration("-9223372036768375809ms"))`,
			`~datetime("2023-02-29")`, `~datetime("2024-01-01T24:00:00Z")`, `~datetime("2024-1-1")`, `~datetime("2024-01-01T00:00:60Z")`, `~datetime("2024-01-01T00:00:00+2400")`, `~datetime("2024-01-01T00:00:00+0060")`,
			`~datetime("2024-01-01T00:00:00")`, `~datetime("2024-01-01T00:00:00.1Z")`, `~datetime("2024-01-01T00:00:00.1234Z")`, `~datetime("2024-01-01t00:00:00Z")`, `~datetime("+2024-01-01")`, `~datetime("-001-01-01")`, `~datetime("")`,
			`~datetime("2024-01-01 ")`, `~datetime("2024-00-10")`, `~datetime("2024-01-01T00:00:00z")`, `~datetime("2024-01-01T00:00:00-0000")`,
		},
		[]string{`$Datetime.offset($Duration)`, `$Datetime.toDate()`, `$Datetime.toDate()`, `if $Bool then $Datetime else $Datetime`, `$User.t`, `~datetime($String)`, `~$Any.toDate()`},
	},
	"Duration": {
		[]string{
			`duration("1d")`, `duration("-1d2h3m4s5ms")`, `duration("0ms")`, `duration("-1ms")`, `duration("25h")`, `duration("-86400000ms")`, `duration("9223372036854775807ms")`, `duration("-9223372036854775807ms")`, `duration("106751991167d")`,
			`principal.u`, `context.u`, `resource.u`,
			`~duration("")`, `~duration("1h1h")`, `~duration("1ms1d")`, `~duration("9223372036854775808ms")`, `~duration("+1d")`, `~duration("106751991168d")`, `~duration("1")`, `~duration("-")`, `~duration("1.5h")`, `~duration("1d 1h")`,
			`~duration("d")`, `~duration("00001d")`, `~duration("-0d")`, `~duration("1D")`, `~duration("--1d")`, `~duration("99999999999999999999ms")`,
		},
		[]string{`$Datetime.durationSince($Datetime)`, `$Datetime.toTime()`, `$Datetime.toTime()`, `if $Bool then $Duration else $Duration`, `$User.u`, `~duration($String)`, `~$Any.toTime()`},
	},
}

// kinds are the types that values have.
var kinds = []string{"Bool", "Long", "String", "User", "Color", "Longs", "Strings", "Record", "Decimal", "IP", "Datetime", "Duration"}

// A generator makes random cases and counts what it uses of the grammar.
type generator struct {
	*rand.Rand
	schema   bool // everything as the schema asks, or nearly
	declared bool // config.yaml types what JSON cannot say
	clock    bool // config.yaml names the clock
	parents  bool // config.yaml makes the groups of a subject its parents
	pep      bool // config.yaml makes the PEP an authority
	drop     bool // config.yaml drops what the schema does not declare
	wrong    int  // of a thousand values
	used     map[string]int
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

var part = regexp.MustCompile(`\$[A-Z]\w*`)

// expression writes an expression with at most so many levels below it. Now
// and then, without a schema, it is of another type than asked for.
func (g *generator) expression(kind string, depth int) string {
	if kind == "Any" || !g.schema && kind != "Pattern" && g.chance(4) {
		kind = pick(g.Rand, kinds...)
	}
	choices := grammar[kind].leaves
	if depth > 0 && grammar[kind].compounds != nil && g.chance(75) {
		choices = grammar[kind].compounds
	}
	production := pick(g.Rand, choices...)
	if production[0] == '~' && g.schema && !g.chance(1) {
		return g.expression(kind, depth)
	}
	g.used[production]++
	return part.ReplaceAllStringFunc(strings.TrimPrefix(production, "~"), func(kind string) string {
		return g.operand(kind[1:], depth-1)
	})
}

// operand writes an expression in brackets where it needs them. Some are left
// out, to see that operators bind alike.
func (g *generator) operand(kind string, depth int) string {
	e := g.expression(kind, depth)
	bare := !strings.Contains(e, " ") && !strings.ContainsAny(e[:1], "-!")
	if kind == "Pattern" || bare || g.chance(3) {
		return e
	}
	return "(" + e + ")"
}

// policy writes a policy without its @id.
func (g *generator) policy() string {
	var b strings.Builder
	if g.chance(10) {
		b.WriteString(pick(g.Rand, "@note(\"n\")\n", "@note\n", "@if(\"\\u{41}\")\n", "// a comment; \"\n"))
	}
	fmt.Fprintf(&b, "%s (%s, %s, %s)", pick(g.Rand, "permit", "permit", "forbid"), g.scope("principal"), g.scope("action"), g.scope("resource"))
	for range pick(g.Rand, 0, 0, 1, 1, 1, 2, 3) {
		fmt.Fprintf(&b, "\n%s { %s }", pick(g.Rand, "when", "when", "unless"), g.expression("Bool", 1+g.IntN(4)))
	}
	b.WriteString(";\n")
	return b.String()
}

// scopes are the scopes of each variable; what begins with ~ is rare.
var scopes = map[string][]string{
	"principal": {
		`principal`, `principal`, `principal`, `principal == User::"u0"`, `principal in Group::"g0"`, `principal in Group::"g2"`, `principal in User::"u0"`,
		`principal is User`, `principal is User in Group::"g1"`, `~principal is Group`, `~principal is NS::Thing in Group::"g1"`,
	},
	"action": {
		`action`, `action`, `action`, `action == Action::"read"`, `action in Action::"all"`, `action in [Action::"read", Action::"write"]`, `action in [Action::"all"]`,
		`~action == Action::"absent"`, `~action in []`, `~action in NS::Action::"read"`, `~action == User::"u0"`, `~action in [Action::"read", User::"u0"]`,
	},
	"resource": {
		`resource`, `resource`, `resource`, `resource == Doc::"d0"`, `resource in Folder::"f0"`, `resource in Folder::"f2"`, `resource is Doc`, `resource is Doc in Folder::"f1"`,
		`~resource is User`, `~resource == User::"u0"`,
	},
}

func (g *generator) scope(variable string) string {
	chosen := pick(g.Rand, scopes[variable]...)
	if chosen[0] == '~' && !g.chance(20) {
		return variable
	}
	return strings.TrimPrefix(chosen, "~")
}

var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\w+|\s+|::|[=!<>]=|&&|\|\||.`)

// junk is what damage puts into policies.
var junk = []string{
	"!", "!!!!!", "-", "-----", "/* c */", "\u00a0", "\n", "\t", "\r", "\f", "\v", "\u2028", "\ufeff", "//\n", "#", "\\", ",", ";", ".", ":", "::", "=", "==", "<", "<=", "&", "%", "/", "*", "()", "[]", "{}",
	`"\u{d800}"`, `"\q"`, `"\x80"`, `"\u{0000041}"`, `"\u{1_F6_00}"`, `"\u{_1}"`, `"\*"`, "\"a\nb\"", "'a'", "?principal", "?resource", "1_000", "99999999999999999999", "0x1", "1.5", "00",
	"__cedar::x", "a::b", `Action::"x"`, "principal", "context.a", "has", "is", "like", "in", "if", "then", "true", "and", "when", "unless", "permit", "@a", "@id(\"a\")", "ip", "ip()", ".isIpv4()", ".foo()", ".contains()", "contains",
}

// damage changes a policy at one place.
func (g *generator) damage(policy string) string {
	tokens := token.FindAllString(policy, -1)
	at := g.IntN(len(tokens))
	switch g.IntN(4) {
	case 0:
		tokens[at] = ""
	case 1:
		tokens[at] += " " + tokens[at]
	case 2:
		tokens[at] = pick(g.Rand, tokens...)
	default:
		tokens[at] += pick(g.Rand, junk...)
	}
	return strings.Join(tokens, "")
}

var userIDs = []string{"u0", "u1", "u2", "ü \"q\" \\\n"}

// value makes a value of a kind.
func (g *generator) value(kind string) value {
	v := value{kind: kind}
	switch kind {
	case "Bool":
		v.text = pick(g.Rand, "true", "false")
	case "Long": // at most 2^53, which is all that node reads from JSON
		v.text = pick(g.Rand, "0", "1", "-1", "2", "7", "10", "9007199254740991", "-4503599627370496")
	case "String":
		v.text = pick(g.Rand, "a", "", "u0", "s", "a*b", "ü😀", "A\u0308b", "+1.0", "1.5", "10.0.0.1", "2024-01-01", "1h", "\"\\\n")
	case "User":
		v.text = pick(g.Rand, userIDs...)
	case "Color":
		v.text = pick(g.Rand, "red", "blue")
		if g.IntN(1000) < g.wrong {
			v.text, v.wrong = "green", true
		}
	case "Longs":
		v.set = g.values("Long")
	case "Strings":
		v.set = g.values("String")
	case "Record":
		v.record = map[string]value{"n": g.value("Long"), "s": g.value("String"), "r": {kind: "Record", record: map[string]value{"b": g.value("Bool")}}}
	default:
		v.text, v.wrong = g.argument(kind)
	}
	return v
}

func (g *generator) values(kind string) []value {
	out := make([]value, g.IntN(4))
	for i := range out {
		out[i] = g.value(kind)
	}
	return out
}

var constructor = regexp.MustCompile(`^~?\w+\(("(?:[^"\\]|\\.)*")\)$`)

// argument takes the argument of a constructor from the grammar.
func (g *generator) argument(kind string) (text string, wrong bool) {
	leaf := pick(g.Rand, grammar[kind].leaves...)
	m := constructor.FindStringSubmatch(leaf)
	if m == nil || leaf[0] == '~' && g.IntN(1000) >= g.wrong {
		return g.argument(kind)
	}
	if err := json.Unmarshal([]byte(m[1]), &text); err != nil {
		panic(err)
	}
	return text, leaf[0] == '~'
}

// attributes are the attributes of users, of documents and of the context.
var attributes = map[string]string{
	"b": "Bool", "n": "Long", "s": "String", "e": "User", "c": "Color", "ns": "Longs", "ss": "Strings", "r": "Record",
	"d": "Decimal", "ip": "IP", "t": "Datetime", "u": "Duration", "odd name": "String",
}

// record makes a record of attributes, each with the chance; with a schema it
// is complete. A few are of another type.
func (g *generator) record(percent int) map[string]value {
	out := map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if !g.schema && !g.chance(percent) {
			continue
		}
		kind := attributes[name]
		switch {
		case g.schema && g.IntN(1000) < g.wrong: // one that no text can be read as
			kind = pick(g.Rand, "Bool", "Longs", "Record")
		case !g.schema && g.chance(4):
			kind = pick(g.Rand, kinds...)
		}
		v := g.value(kind)
		v.wrong = v.wrong || g.schema && kind != attributes[name]
		out[name] = v
	}
	return out
}

var fraction = regexp.MustCompile(`^-?(?:0|[1-9]\d*)\.\d*[1-9]$`)

// said turns a record into what a PEP can say of it: what no declaration types
// is text.
func (g *generator) said(members map[string]value) map[string]value {
	for name, v := range members {
		switch {
		case g.schema, g.declared && v.kind == attributes[name]:
		case g.declared && unsaid(attributes[name]):
			members[name] = g.value(attributes[name])
		case v.kind == "Decimal" && !v.wrong && fraction.MatchString(v.text):
		case unsaid(v.kind):
			members[name] = value{kind: "String", text: v.text}
		}
	}
	return members
}

// sent writes a value as a PEP sends it, in one of the ways that JSON has.
func (g *generator) sent(v value) string {
	switch {
	case v.kind == "User" && g.chance(30):
		return fmt.Sprintf(`{"id":%s,"type":"User"}`, quote(v.text))
	case v.kind == "Decimal" && !v.wrong && (!g.schema && !g.declared || g.chance(30) && fraction.MatchString(v.text)):
		return v.text
	case unsaid(v.kind):
		return quote(v.text)
	case v.kind == "Long" && v.text == "10" && g.chance(50):
		return pick(g.Rand, "1e1", "1.0E+1", "100e-1")
	case v.kind == "Long" && g.chance(20):
		return v.text + pick(g.Rand, ".0", "e0", ".00E+0")
	case v.kind == "String" && g.chance(10) && v.text == "a":
		return `"\u0061"`
	}
	return v.json(g.sent)
}

// sentObject writes a record as a PEP sends it, with members that do not count.
func (g *generator) sentObject(members map[string]value) jsontext.Value {
	text := object(members, g.sent)
	if g.chance(10) {
		text = strings.Replace(text, "{", pick(g.Rand, `{"void":null`, "{ \n\"void\" : null")+strings.Repeat(",", min(len(members), 1)), 1)
	}
	return jsontext.Value(text)
}

// A storedEntity is one of the store.
type storedEntity struct {
	uid
	attributes, tags map[string]value
	parents          []uid
}

func (e storedEntity) stored() string {
	parents := make([]string, len(e.parents))
	for i, p := range e.parents {
		parents[i] = fmt.Sprintf(`{"type":%q,"id":%s}`, p.Type, quote(p.ID))
	}
	return fmt.Sprintf(`{"uid":{"type":%q,"id":%s},"attrs":%s,"parents":[%s],"tags":%s}`,
		e.Type, quote(e.ID), object(e.attributes, value.stored), strings.Join(parents, ","), object(e.tags, value.stored))
}

func storedEntities(all []storedEntity, more ...string) jsontext.Value {
	var texts []string
	for _, e := range all {
		texts = append(texts, e.stored())
	}
	return jsontext.Value("[" + strings.Join(append(texts, more...), ",\n") + "]")
}

// entities makes a store: users in groups, documents in folders and, where no
// schema has them, actions.
func (g *generator) entities() []storedEntity {
	groups := []uid{{"Group", "g0"}, {"Group", "g1"}, {"Group", "g2"}}
	folders := []uid{{"Folder", "f0"}, {"Folder", "f1"}, {"Folder", "f2"}}
	var all []storedEntity
	for i := range groups {
		all = append(all, g.entity(groups[i], groups[i+1:]), g.entity(folders[i], folders[i+1:]))
	}
	for _, id := range userIDs {
		all = append(all, g.entity(uid{"User", id}, groups))
	}
	all = append(all, g.entity(uid{"Doc", "d0"}, folders), g.entity(uid{"Doc", "d1"}, folders))
	if !g.schema {
		all = append(all, g.entity(uid{"Action", "read"}, []uid{{"Action", "all"}}), g.entity(uid{"Action", "write"}, []uid{{"Action", "all"}}))
	}
	return slices.DeleteFunc(all, func(storedEntity) bool { return g.chance(10) })
}

func (g *generator) entity(u uid, parents []uid) storedEntity {
	e := storedEntity{uid: u, tags: map[string]value{}}
	for _, p := range parents {
		if g.chance(40) {
			e.parents = append(e.parents, p)
		}
	}
	if u.Type != "User" && u.Type != "Doc" {
		return e
	}
	e.attributes = g.record(80)
	if g.chance(50) {
		e.tags["s"] = g.value("String")
	}
	if !g.schema && g.chance(50) {
		e.tags["n"] = g.value(pick(g.Rand, kinds...))
	}
	return e
}

// oddEntities are entities that an engine may not accept.
var oddEntities = []string{
	`{"uid":{"type":"Group","id":"g9"},"attrs":{},"parents":[{"type":"Group","id":"g9"}]}`,
	`{"uid":{"type":"Group","id":"g8"},"attrs":{},"parents":[{"type":"Group","id":"g9"}]},{"uid":{"type":"Group","id":"g9"},"attrs":{},"parents":[{"type":"Group","id":"g8"}]}`,
	`{"uid":{"type":"Folder","id":"f9"},"attrs":{},"parents":[]},{"uid":{"type":"Folder","id":"f9"},"attrs":{},"parents":[]}`,
	`{"uid":{"type":"Action","id":"odd"},"attrs":{},"parents":[{"type":"Group","id":"g0"}]}`,
	`{"uid":{"__entity":{"type":"Group","id":"g9"}},"attrs":{},"parents":[{"__entity":{"type":"Group","id":"g0"}}]}`,
	`{"uid":{"type":"User","id":"u9"},"attrs":{"x":{"__expr":"1"}},"parents":[]}`,
	`{"uid":{"type":"User","id":"u9"},"attrs":{"x":{"__extn":{"fn":"nothing","arg":"1"}}},"parents":[]}`,
	`{"uid":{"type":"User","id":"u9"},"attrs":{"x":{"__entity":{"type":"a b","id":"1"}}},"parents":[]}`,
	`{"uid":{"type":"User","id":"u9"},"attrs":{"x":null},"parents":[]}`,
	`{"uid":{"type":"User","id":"u9"},"attrs":{"x":1.5},"parents":[]}`,
	`{"uid":{"type":"User","id":"u9"},"attrs":{"x":{"__extn":{"fn":"decimal","arg":1}}},"parents":[]}`,
	`{"uid":{"type":"1x","id":"u9"},"attrs":{},"parents":[]}`,
	`{"uid":{"type":"__cedar::x","id":"u9"},"attrs":{},"parents":[]}`,
	`{"uid":{"type":"if","id":"u9"},"attrs":{},"parents":[]}`,
	`{"uid":{"type":"NS::Thing","id":"u9"},"attrs":{},"parents":[{"type":"Group","id":"absent"}]}`,
	`{"uid":"Group::\"g9\"","attrs":{},"parents":[]}`,
	`{"uid":{"type":"Group"},"attrs":{},"parents":[]}`,
	`{"attrs":{},"parents":[]}`,
	`null`,
}

const trialSchema = `
entity Color enum ["red", "blue"];
entity Group in [Group];
entity Folder in [Folder];
entity User in [Group] = { ATTRIBUTES } tags String;
entity Doc in [Folder] = { ATTRIBUTES } tags String;
namespace NS { entity Thing in [Group]; }
action all;
action read, write in [all] appliesTo { principal: [User], resource: [Doc], context: { ATTRIBUTES, action?: { n: Long }, now: datetime } };
type Inner = { n: Long, s: String, r: { b: Bool } };
`

const trialAttributes = `b: Bool, n: Long, s: String, e: User, c: Color, ns: Set<Long>, ss: Set<String>, r: Inner, d: decimal, ip: ipaddr, t: datetime, u: duration, "odd name": String`

// configuration writes config.yaml.
func (g *generator) configuration() []byte {
	lines := []string{"on_policy_error: skip", "type_aliases: {http-user: User}"}
	add := func(when bool, line string) {
		if when {
			lines = append(lines, line)
		}
	}
	add(!g.schema, `subject_types: [User, Group, Doc, "NS::Thing", Action]`)
	add(g.clock, "clock: now")
	add(g.parents, "parents: {groups: Group}")
	add(g.pep, "pep_authoritative: [User.n, Doc]")
	add(g.drop, "undeclared_attributes: drop")
	add(g.declared, "attributes:")
	for _, owner := range []string{"User", "Doc", "context"} {
		for _, t := range []string{"e: User", "c: Color", "d: decimal", "ip: ipaddr", "t: datetime", "u: duration"} {
			add(g.declared, "  "+owner+"."+t)
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

func newTrials(seed uint64, from, to int) []*trial {
	var all []*trial
	for n := from; n < to; n++ {
		all = append(all, newTrial(seed, uint64(n)))
	}
	return all
}

// newTrial makes the nth case of a seed.
func newTrial(seed, n uint64) *trial {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, n)), used: map[string]int{}}
	g.schema = g.chance(25)
	g.declared = !g.schema && g.chance(50)
	g.clock, g.parents, g.pep, g.drop = g.schema || g.chance(50), g.chance(30), !g.schema && g.chance(20), g.schema && g.chance(20)
	c := &trial{name: fmt.Sprintf("seed %d case %d", seed, n), Policies: map[string]string{}, used: g.used}
	c.archive = snapshot.Archive{"config.yaml": g.configuration()}
	if g.schema {
		c.Schema = strings.ReplaceAll(trialSchema, "ATTRIBUTES", trialAttributes)
		c.archive["schema.cedarschema"] = []byte(c.Schema.(string))
	}
	g.addPolicies(c)
	g.wrong = 1
	stored := g.entities()
	c.Entities = storedEntities(stored)
	if g.chance(2) {
		c.Entities = storedEntities(stored, pick(g.Rand, oddEntities...))
	}
	c.archive["entities.json"] = c.Entities
	g.wrong = 10
	for range 4 {
		g.addRequest(c, stored)
	}
	return c
}

func (g *generator) addPolicies(c *trial) {
	for i := range 1 + g.IntN(4) {
		id := fmt.Sprintf("p%d", i)
		text := g.policy()
		if g.chance(5) {
			text = g.damage(text)
		}
		c.Policies[id] = fmt.Sprintf("@id(%q)\n%s", id, text)
		c.archive[id+".cedar"] = []byte(c.Policies[id])
	}
}

// addRequest adds a request to the case, in both forms.
func (g *generator) addRequest(c *trial, stored []storedEntity) {
	subject := uid{"User", pick(g.Rand, userIDs...)}
	resource := uid{"Doc", pick(g.Rand, "d0", "d1")}
	if g.chance(20) && (!g.schema || g.chance(10)) {
		subject = pick(g.Rand, uid{"User", "absent"}, uid{"Group", "g0"}, uid{"NS::Thing", "t"}, uid{"Doc", "d0"})
	}
	if g.chance(20) && (!g.schema || g.chance(10)) {
		resource = pick(g.Rand, uid{"Doc", "absent"}, uid{"Folder", "f0"}, uid{"User", "u0"}, uid{"Action", "read"})
	}
	name := pick(g.Rand, "read", "read", "read", "write", "write", "all")
	request := &authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: subject.Type, ID: subject.ID},
		Action:   authzen.Action{Name: name},
		Resource: authzen.Resource{Type: resource.Type, ID: resource.ID},
	}
	if subject.Type == "User" && g.chance(10) {
		request.Subject.Type = "http-user"
	}
	overlay := slices.Clone(stored)
	request.Subject.Properties = g.addProperties(&overlay, subject, g.parents)
	if resource != subject {
		request.Resource.Properties = g.addProperties(&overlay, resource, false)
	}
	context := g.addContext(request)
	c.requests = append(c.requests, request)
	c.Requests = append(c.Requests, officialRequest{subject, uid{"Action", name}, resource,
		jsontext.Value(object(context, value.stored)), storedEntities(overlay)})
}

// addContext gives the request a context and properties of its action, and
// returns the Cedar context.
func (g *generator) addContext(request *authzen.EvaluationRequest) map[string]value {
	context := g.said(g.record(80))
	if g.schema && g.IntN(1000) < g.wrong {
		delete(context, "s")
	}
	sent := maps.Clone(context)
	if extra := g.schema && g.chance(2); extra {
		sent["extra"] = g.value("Long")
		if !g.drop {
			context["extra"] = sent["extra"]
		}
	}
	request.Context = g.sentObject(sent)
	if g.chance(30) {
		properties := map[string]value{"n": g.value("Long")}
		request.Action.Properties = g.sentObject(properties)
		context["action"] = value{kind: "Record", record: properties}
	}
	if g.clock {
		context["now"] = value{kind: "Datetime", text: trialTime.Format("2006-01-02T15:04:05.000Z")}
	}
	return context
}

// addProperties makes properties of an entity and lays them over what is
// stored of it.
func (g *generator) addProperties(all *[]storedEntity, u uid, parents bool) jsontext.Value {
	if !g.chance(50) {
		return nil
	}
	i := slices.IndexFunc(*all, func(e storedEntity) bool { return e.uid == u })
	if i < 0 {
		i = len(*all)
		*all = append(*all, storedEntity{uid: u})
	}
	e := (*all)[i]
	said := map[string]value{}
	if u.Type == "User" || u.Type == "Doc" {
		said = g.said(g.record(40))
	}
	maps.DeleteFunc(said, func(name string, v value) bool { // the official engine is not told what is not used
		_, ok := e.attributes[name]
		return ok && v.wrong
	})
	sent := maps.Clone(said)
	if parents && u.Type == "User" && g.chance(70) {
		sent["groups"] = value{kind: "Strings", set: []value{{kind: "String", text: pick(g.Rand, "g0", "g1", "absent")}}}
		if !g.schema {
			said["groups"] = sent["groups"]
		}
		if len(e.parents) == 0 {
			e.parents = []uid{{"Group", sent["groups"].set[0].text}}
		}
	}
	for name, v := range e.attributes {
		if authority := u.Type == "Doc" || name == "n" && u.Type == "User"; said[name].kind == "" || !g.pep || !authority {
			said[name] = v
		}
	}
	e.attributes = said
	(*all)[i] = e
	return g.sentObject(sent)
}
