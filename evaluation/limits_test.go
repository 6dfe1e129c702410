//go:build linux

package evaluation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// What anything may cost, beside what every byte of it does.
const (
	limitsBudget  = 5 * time.Millisecond
	compiledByte  = 4 * time.Microsecond
	decidedByte   = 150 * time.Nanosecond
	limitsTimeout = 3 * time.Second // in which all is measured
)

// A burden is a policy and a request made to cost as much as they can.
type burden struct {
	name       string
	conditions string // of the policy, which is for every request
	context    string // JSON
}

// whole is as long as a policy may be.
const whole = 64<<10 - 100

// atLimits are accepted: each is as large as a limit allows.
var atLimits = []burden{
	{"64 brackets", nested("(", `true`, ")", 63), `{}`},
	{"64 brackets of arrays", nested("[", `1`, "]", 62) + ` == 1`, `{}`},
	{"64 brackets of records", nested("{a: ", `1`, "}", 62) + ` == 1`, `{}`},
	{"four !", `!!!!true`, `{}`},
	{"a has of 16 attributes", `context has ` + repeat("a", ".a", 15), nested(`{"a":`, `1`, `}`, 30)},
	{"a pattern of 256 bytes", `context.s like "` + strings.Repeat(`*a`, 127) + `*b"`, `{"s":"` + strings.Repeat("a", 8192) + `"}`},
	{"a pattern of 256 bytes with one wildcard", `context.s like "*` + strings.Repeat(`a`, 254) + `b"`, `{"s":"` + strings.Repeat("a", 8192) + `"}`},
	{"64 colliding arrays", `context.a.contains(1)`, `{"a":` + collide(0, 64) + `}`},
	{"64 colliding objects", `context.a.contains(1)`, `{"a":` + inObjects(collide(0, 64)) + `}`},
	{"64 colliding arrays, twice", `context.a.containsAny(context.b) || context.a == context.b`, `{"a":` + collide(0, 64) + `,"b":` + collide(64, 64) + `}`},
	{"1024 numbers", `context.a.containsAll(context.b)`, `{"a":` + numbers(0, 1024) + `,"b":` + numbers(1, 1024) + `}`},
}

// hasInHas has a path of has as long as it may be within another one's operand.
var hasInHas = nested(`(if `, `context`, ` has `+repeat("a", ".a", 15)+` then context else context)`, 2) + ` has a`

// costly are made to cost more than they say. They may be refused.
var costly = []burden{
	{"a chain of &&", upTo(whole, `true`, ` && true`), `{}`},
	{"a chain of || on the principal", upTo(whole, `principal == A::"a"`, ` || principal == A::"a"`), `{}`},
	{"a chain of +", upTo(whole, `1`, `+1`) + ` == 1`, `{}`},
	{"a chain of attributes", upTo(whole, `context`, `.a`) + ` == 1`, nested(`{"a":`, `1`, `}`, 30)},
	{"a chain of methods", `datetime("2024-01-01")` + upTo(whole, ``, `.toDate()`) + ` == context`, `{}`},
	{"a chain of methods with arguments", `datetime("2024-01-01")` + upTo(whole, ``, `.offset(duration("1h")).toDate()`) + ` == context`, `{}`},
	{"a chain of else if", elseIf(whole), `{}`},
	{"a literal set", upTo(whole, `[0`, `,1`) + `].contains(context)`, `{}`},
	{"a literal set of sets", collide(0, whole/17) + `.contains(context)`, `{}`},
	{"a set of sets with a variable", `[context, ` + collide(0, whole/17)[1:] + `.contains(1)`, `{}`},
	{"entities in every dimension", named("action", 1500) + ` && ` + named("principal", 1500) + ` && ` + named("resource", 1500), `{}`},
	{"decimal in decimal", nested(`decimal(if `, `true`, ` == context then "1.0" else "2.0")`, 60) + ` == context`, `{}`},
	{"has in has", nested(`(if `, `context`, ` has a.a.a.a.a.a.a.a then context else context)`, 60) + ` has a`, `{}`},
	{"has in has behind an attribute", nested(`(if `, `context`, ` has a.a.a.a.a.a.a.a then context else context).x`, 60) + ` has a`, `{}`},
	{"has in has behind a record", nested(`{a: {a: `, `context`, ` has a.a} has a.a}`, 20) + ` has a`, `{}`},
	{"long has in long has", hasInHas, nested(`{"a":`, `1`, `}`, 30)},
	{"has of a bracket of many has", `(if ` + upTo(whole-200, `true`, ` && context has a.a`) + ` then context else context) has ` + repeat("a", ".a", 15), `{"a":{"a":1}}`},
	{"has of a bracket of many attributes", `(if ` + upTo(whole-200, `true`, ` && context.a`) + ` then context else context) has ` + repeat("a", ".a", 15), nested(`{"a":`, `1`, `}`, 30)},
	{"a set of bracketed sets with a variable", `[context, ` + bracketed(collide(0, whole/20)) + `.contains(1)`, `{}`},
	{"many sets of sets with a variable", upTo(whole, `false`, ` || [context, `+collide(0, 63)[1:]+`.contains(1)`), `{}`},
	{"sets of sets of sets with a variable", `[[context], ` + allButOne(allButOne(collide(0, 17)))[1:] + `.contains(1)`, `{}`},
	{"1 MB of members", `true`, members(80_000, `1`)},
	{"numbers of two types", `context.a.containsAny(context.b)`, `{"a":` + mixed(1, 1024) + `,"b":` + mixed(513, 1024) + `}`},
	{"1 MB of numbers of two types", `true`, members(190, mixed(1, 1024))},
	{"1 MB of colliding arrays", `true`, members(1000, collide(0, 64))},
	{"1 MB of colliding objects", `true`, members(700, inObjects(collide(0, 64)))},
	{"arrays of colliding arrays", `true`, `{"a":` + allButOne(collide(0, 44)) + `}`},
	{"arrays of arrays of colliding arrays", `true`, `{"a":` + allButOne(allButOne(collide(0, 20))) + `}`},
	{"a long name over many objects", `true`, `{"` + strings.Repeat("a", 1<<19) + `":` + members(50_000, `{}`) + `}`},
	{"a long name over many arrays", `true`, `{"` + strings.Repeat("a", 1<<19) + `":` + members(50_000, `[]`) + `}`},
}

var timed = flag.Bool("limits", false, "hold what is accepted at every limit against its budget of processor time")

// skipUntimed skips a test that measures where others use the machine, too.
func skipUntimed(t *testing.T) {
	t.Helper()
	if !*timed {
		t.Skip("skipped without -limits: it measures processor time")
	}
}

// TestAtLimits holds what is accepted against the budget.
func TestAtLimits(t *testing.T) {
	skipUntimed(t)
	for _, b := range atLimits {
		t.Run(b.name, func(t *testing.T) {
			if err := b.measure(t); err != nil {
				t.Errorf("refused: %s", short(err))
			}
		})
	}
}

// TestCostly holds what tries to cost much against the budget or refusal.
func TestCostly(t *testing.T) {
	skipUntimed(t)
	apart(t, costly, func(t *testing.T, b burden) {
		if err := b.measure(t); err != nil {
			expectRefusal(t, err)
		}
	})
}

// measure logs what it costs to compile and to decide, and returns why either
// is refused.
func (b burden) measure(t *testing.T) error {
	t.Helper()
	archive, request := b.archive(), b.request()
	var compiled *snapshot.Snapshot
	var err error
	inBudget(t, "compile", len(b.conditions), compiledByte, func() { compiled, err = snapshot.Compile(archive) })
	if err == nil {
		inBudget(t, "decide", len(b.context), decidedByte, func() { _, err = compiled.Decide(request, snapshot.Environment{}) })
	}
	return err
}

// inBudget logs what run costs and holds it against the budget.
func inBudget(t *testing.T, what string, size int, perByte time.Duration, run func()) {
	t.Helper()
	budget := (limitsBudget + perByte*time.Duration(size)) * slowdown()
	least := time.Hour
	for begin := time.Now(); time.Since(begin) < limitsTimeout/30; {
		least = min(least, processorTime(run))
	}
	t.Logf("%s %d bytes in %.3fms", what, size, least.Seconds()*1000)
	if least > budget {
		t.Errorf("%s: over the budget of %v", what, budget)
	}
}

// processorTime returns the processor time that run takes on its thread, of as
// many runs as the clock needs.
func processorTime(run func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n := 1; ; n *= 2 {
		start := threadTime()
		for range n {
			run()
		}
		if spent := threadTime() - start; spent > 20*time.Millisecond {
			return spent / time.Duration(n)
		}
	}
}

func threadTime() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thisThread, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// excessive are beyond the limits.
var excessive = []burden{
	{"65 brackets", nested("(", `true`, ")", 64), `{}`},
	{"1 MB of brackets", nested("(", `true`, ")", 1<<19), `{}`},
	{"1 MB of open brackets", strings.Repeat("(", 1<<20), `{}`},
	{"1 MB of open arrays", strings.Repeat("[", 1<<20), `{}`},
	{"1 MB of open records", strings.Repeat("{a:", 1<<18), `{}`},
	{"five !", `!!!!!true`, `{}`},
	{"1 MB of !", strings.Repeat("!", 1<<20) + `true`, `{}`},
	{"1 MB of -", strings.Repeat("-", 1<<20) + `1 == 1`, `{}`},
	{"1 MB of &&", upTo(1<<20, `true`, ` && true`), `{}`},
	{"10 MB of else if", elseIf(10 << 20), `{}`},
	{"1 MB of if", strings.Repeat(`if `, 1<<18), `{}`},
	{"a has of 17 attributes", `context has ` + repeat("a", ".a", 16), `{}`},
	{"20 kB of has", `context has ` + repeat("a", ".a", 10_000), `{}`},
	{"a policy of 64 KiB", upTo(64<<10, `true`, ` && true`), `{}`},
	{"a pattern of 257 bytes", `context.s like "` + strings.Repeat(`a`, 257) + `"`, `{}`},
	{"a string of 8193 bytes", `true`, `{"s":"` + strings.Repeat("a", 8193) + `"}`},
	{"1025 numbers", `true`, `{"s":` + numbers(0, 1025) + `}`},
	{"65 colliding arrays", `true`, `{"a":` + collide(0, 65) + `}`},
	{"65 colliding objects", `true`, `{"a":` + inObjects(collide(0, 65)) + `}`},
	{"1 MB of one array of colliding arrays", `true`, `{"a":` + collide(0, 65_000) + `}`},
	{"1 MB of digits", `true`, `{"a":` + strings.Repeat("9", 1<<20) + `}`},
	{"a large exponent", `true`, `{"a":1e999999999}`},
}

// TestExcessive sees what is beyond the limits refused.
func TestExcessive(t *testing.T) {
	apart(t, excessive, func(t *testing.T, b burden) {
		start := time.Now()
		compiled, err := snapshot.Compile(b.archive())
		if err == nil {
			_, err = compiled.Decide(b.request(), snapshot.Environment{})
		}
		t.Logf("%.3fms", time.Since(start).Seconds()*1000)
		expectRefusal(t, err)
	})
}

// expectRefusal holds an error against the types of those that people get.
func expectRefusal(t *testing.T, err error) {
	t.Helper()
	var found faults.List
	var invalid *authzen.ValidationError
	if !errors.As(err, &found) && !errors.As(err, &invalid) {
		t.Fatalf("not refused: %v", err)
	}
	t.Logf("refused: %s", short(err))
}

// limitsApart tells a process that it is one that apart has started.
const limitsApart = "EVALUATION_TEST_LIMITS_APART"

// apart runs a test with each of the burdens in a process of its own, which
// they may end or keep busy: all in one and, if that does not end well, each
// in one.
func apart(t *testing.T, burdens []burden, run func(*testing.T, burden)) {
	t.Helper()
	if os.Getenv(limitsApart) != "" {
		for _, b := range burdens {
			t.Run(b.name, func(t *testing.T) { run(t, b) })
		}
		return
	}
	if said, err := again(t, limitsTimeout*time.Duration(len(burdens))/4); err == nil {
		t.Log(said)
		return
	}
	for _, b := range burdens {
		t.Run(b.name, func(t *testing.T) {
			said, err := again(t, limitsTimeout)
			if t.Log(said); err != nil {
				t.Error(err)
			}
		})
	}
}

// again runs the current test in another process and returns what it logs.
func again(t *testing.T, timeout time.Duration) (said string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout*slowdown())
	defer cancel()
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	child := exec.CommandContext(ctx, os.Args[0], "-test.v", fmt.Sprintf("-limits=%t", *timed), "-test.run="+pattern)
	child.Env = append(os.Environ(), limitsApart+"=1")
	out, err := child.CombinedOutput()
	var lines strings.Builder
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "=== RUN "); ok {
			fmt.Fprintf(&lines, "\n%-60s", strings.TrimSpace(name))
		} else if _, log, ok := strings.Cut(line, "_test.go:"); ok {
			_, log, _ = strings.Cut(log, ": ")
			fmt.Fprintf(&lines, "  %s", log)
		} else if strings.HasPrefix(line, "fatal error: ") {
			fmt.Fprintf(&lines, "  %s", line)
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v", timeout*slowdown())
	}
	return lines.String(), err
}

func (b burden) archive() snapshot.Archive {
	return snapshot.Archive{"p.cedar": []byte("@id(\"p\") permit (principal, action, resource) when { " + b.conditions + " };")}
}

func (b burden) request() *authzen.EvaluationRequest {
	return &authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: "User", ID: "alice"},
		Action:   authzen.Action{Name: "read"},
		Resource: authzen.Resource{Type: "Doc", ID: "1"},
		Context:  jsontext.Value(b.context),
	}
}

// slowdown is what the race detector costs.
func slowdown() time.Duration {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" && setting.Value == "true" {
				return 10
			}
		}
	}
	return 1
}

// short cuts an error that quotes its cause.
func short(err error) string { return fmt.Sprintf("%.120s", err) }

func repeat(first, next string, n int) string { return first + strings.Repeat(next, n) }

// upTo repeats next as often as it fits.
func upTo(size int, first, next string) string {
	return repeat(first, next, (size-len(first))/len(next))
}

func nested(open, inside, closing string, n int) string {
	return strings.Repeat(open, n) + inside + strings.Repeat(closing, n)
}

func elseIf(size int) string {
	return strings.Repeat(`if false then true else `, size/24) + `true`
}

// collide makes an array of arrays that all have the same hash in cedar-go.
func collide(from, n int) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf("[%d,%d]", from+i, 1_000_000-from-i)
	}
	return "[" + strings.Join(elements, ",") + "]"
}

// bracketed puts each array of an array into brackets, and leaves out the first
// bracket of all.
func bracketed(array string) string {
	return strings.NewReplacer("[", "([", "]", "])").Replace(array[1:len(array)-1]) + "]"
}

// inObjects puts each array of an array into an object.
func inObjects(array string) string {
	return "[" + strings.NewReplacer("[", `{"a":[`, "]", "]}").Replace(array[1:len(array)-1]) + "]"
}

// allButOne makes an array of arrays that have the same hash, and are the same
// but for one element, from an array of such.
func allButOne(array string) string {
	var elements []jsontext.Value
	if err := json.Unmarshal([]byte(array), &elements); err != nil {
		panic(err)
	}
	out := make([]string, len(elements))
	for i := range out {
		rest := slices.Delete(slices.Clone(elements), i, i+1)
		out[i] = string(must(json.Marshal(rest)))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// mixed makes an array of integers and decimals that have the same hashes.
func mixed(from, n int) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprint(from + i)
		if odd := from + i - n/2; i >= n/2 {
			elements[i] = fmt.Sprintf("%d.%04d", odd/10000, odd%10000)
		}
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func numbers(from, n int) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprint(from + i)
	}
	return "[" + strings.Join(elements, ",") + "]"
}

// members makes an object whose members all have the value.
func members(n int, value string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"%d":%s`, i, value)
	}
	return "{" + strings.Join(all, ",") + "}"
}

func named(variable string, n int) string {
	var entities []string
	for i := range n {
		entities = append(entities, fmt.Sprintf(`A::"%d"`, i))
	}
	return variable + " in [" + strings.Join(entities, ",") + "]"
}
