package evaluation_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	isolationCases = flag.Int("isolation.n", 60, "how many times to change one tenant and look at the other")
	isolationSeed  = flag.Uint64("isolation.seed", 1, "seed of the tenants and requests")
)

// TestTenantsAreIsolated holds that nothing of one tenant, neither its files
// nor its requests, changes an answer that another gets, alone, in a batch or to
// a search, or how the log explains it. The two use the same names for everything.
func TestTenantsAreIsolated(t *testing.T) {
	start := time.Now()
	seen := map[string]int{}
	e := isolated(t)
	for n := range *isolationCases {
		c := newNeighbours(*isolationSeed, uint64(n))
		if diff := c.check(t, e, nil, seen); diff != "" {
			t.Fatalf("seed %d, case %d: what is umbrella's has changed (-before +after):\n%s", *isolationSeed, n, diff)
		}
	}
	t.Logf("seed %d, %d cases, %v in %v", *isolationSeed, *isolationCases, seen, time.Since(start).Round(time.Millisecond))
	for _, what := range []string{"changes that show", "changes refused", "tenants gone", "answers allowed", "answers denied", "answers in error", "answers that find something"} {
		if seen[what] < *isolationCases/50+1 {
			t.Errorf("%s: only %d of %d cases", what, seen[what], *isolationCases)
		}
	}
}

// TestIsolationControl plants leaks, each of which the check must see.
func TestIsolationControl(t *testing.T) {
	const cases = 60
	e := isolated(t)
	for name, leak := range evaluation.Leaks {
		n := uint64(0)
		for n < cases && newNeighbours(*isolationSeed, n).check(t, e, leak, map[string]int{}) == "" {
			n++
		}
		t.Logf("%s: seen in case %d", name, n)
		if n == cases {
			t.Errorf("%s is not seen", name)
		}
	}
}

// isolated returns an engine with nothing in force.
func isolated(t *testing.T) *evaluation.Engine {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	return evaluation.NewEngine(l, evaluation.Config{Now: func() time.Time { return now }})
}

// Neighbours are a store of two tenants, what becomes of acme, and what either
// is asked.
type neighbours struct {
	*rand.Rand
	store   snapshot.Archive
	changed snapshot.Archive
	acme    []string // bodies of requests
	own     []string // umbrella's
}

const requestsOfATenant = 8

func newNeighbours(seed, n uint64) *neighbours {
	c := &neighbours{Rand: rand.New(rand.NewPCG(seed, n)), store: snapshot.Archive{}}
	c.fill("", "guard", 2)
	c.fill("tenants/acme/", "own", 4)
	c.fill("tenants/umbrella/", "own", 4)
	c.changed = maps.Clone(c.store)
	c.change()
	for range requestsOfATenant {
		c.acme, c.own = append(c.acme, c.request()), append(c.own, c.request())
	}
	return c
}

// check compares umbrella's answers before and after acme's change, with a leak
// planted into each store that comes into force if there is one. It counts what
// it has seen.
func (c *neighbours) check(t *testing.T, e *evaluation.Engine, leak leak, seen map[string]int) string {
	if err := install(t, e, c.store, leak); err != nil {
		t.Fatal(err)
	}
	before, theirs := answersTo(t, e, "umbrella", c.own), answersTo(t, e, "acme", c.acme)
	if err := install(t, e, c.changed, leak); err != nil {
		seen["changes refused"]++
	}
	if !e.HasTenant("acme") {
		seen["tenants gone"]++
	}
	if !slices.Equal(theirs, answersTo(t, e, "acme", c.acme)) {
		seen["changes that show"]++
	}
	after := answersTo(t, e, "umbrella", c.own)
	for _, answer := range after {
		seen["answers "+word(answer)]++
	}
	return cmp.Diff(before, after)
}

func word(answer string) string {
	switch {
	case strings.Contains(answer, `"Errors":[{`) || strings.HasPrefix(answer, "error"):
		return "in error"
	case strings.Contains(answer, `"results":[{`):
		return "that find something"
	case strings.Contains(answer, `"results":`):
		return "that find nothing"
	case strings.Contains(answer, `"decision":true`):
		return "allowed"
	}
	return "denied"
}

// A leak makes of umbrella's own snapshot and the other one, acme's, what
// answers umbrella.
type leak = func(own, other snapshot.Snapshot) snapshot.Snapshot

// install puts a store into force, unless it is one to refuse, and plants the
// leak, if there is one.
func install(t *testing.T, e *evaluation.Engine, store snapshot.Archive, leak leak) error {
	t.Helper()
	e.Leak(leak, store, "umbrella", "acme")
	_, err := e.Reload(t.Context(), evaluation.Change{Archive: store, Cause: "change", Shrink: true})
	return err
}

// answersTo asks a tenant's requests one by one, as searches and as a batch, and
// returns what is answered, why, and by which revision.
func answersTo(t *testing.T, e *evaluation.Engine, tenant string, bodies []string) []string {
	t.Helper()
	call := evaluation.Call{Tenant: tenant}
	var out []string
	add := func(v any, err error) {
		if err != nil {
			out = append(out, "error "+err.Error())
			return
		}
		text, err := json.Marshal(v, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	s, err := e.Snapshots().For(tenant)
	if err != nil {
		return []string{err.Error()}
	}
	add(s.Revision(), nil)
	for _, body := range bodies {
		add(e.Evaluate(t.Context(), call, request(t, body)))
		add(s.Decide(request(t, body), environment))
		r := request(t, body)
		add(e.SearchSubjects(t.Context(), call, &authzen.SubjectSearchRequest{Subject: authzen.Searched{Type: r.Subject.Type}, Action: r.Action, Resource: r.Resource, Context: r.Context}))
		add(e.SearchResources(t.Context(), call, &authzen.ResourceSearchRequest{Subject: r.Subject, Action: r.Action, Resource: authzen.Searched{Type: r.Resource.Type}, Context: r.Context}))
		add(e.SearchActions(t.Context(), call, &authzen.ActionSearchRequest{Subject: r.Subject, Resource: r.Resource, Context: r.Context}))
	}
	add(e.Evaluations(t.Context(), call, batch(t, `{"evaluations":[`+strings.Join(bodies, ",")+`]}`)))
	return out
}

// change does up to three things to acme.
func (c *neighbours) change() {
	const acme = "tenants/acme/"
	for range 1 + c.IntN(3) {
		switch c.IntN(8) {
		case 0:
			c.changed[acme+"more.cedar"] = []byte(c.policies("more", 3))
		case 1:
			c.changed[acme+"own.cedar"] = []byte("permit (")
		case 2:
			maps.DeleteFunc(c.changed, func(file string, _ []byte) bool { return strings.HasPrefix(file, acme) })
		case 3:
			c.changed["tenants/initech/own.cedar"] = []byte(c.policies("own", 3))
		case 4:
			c.changed[acme+"entities.json"] = []byte(c.entities())
		case 5:
			c.changed[acme+"config.yaml"] = []byte(c.config())
		default:
			c.changed[acme+"own.cedar"] = []byte(c.policies("own", 4))
		}
	}
}

// fill makes the files of a directory.
func (c *neighbours) fill(dir, name string, policies int) {
	c.store[dir+name+".cedar"] = []byte(c.policies(name, policies))
	c.store[dir+"config.yaml"] = []byte("tenant_entities: {attributes: [team, level]}\n" + c.one("", "on_policy_error: deny_any\n"))
	if dir != "" {
		c.store[dir+"config.yaml"] = []byte(c.config())
		c.store[dir+"entities.json"] = []byte(c.entities())
	}
}

func (c *neighbours) one(of ...string) string { return of[c.IntN(len(of))] }

func (c *neighbours) policies(name string, n int) string {
	var b strings.Builder
	for i := range n {
		effect := c.one("permit", "permit", "permit", "forbid")
		if name == "guard" { // names of types are left to the tenants, whose settings are about them
			fmt.Fprintf(&b, "@id(\"guard-%d\")\n%sforbid (principal, %s, resource)%s;\n", i, c.one("", "", c.notice()),
				c.one("action", `action == Action::"read"`, `action == Action::"write"`), c.guard())
			continue
		}
		fmt.Fprintf(&b, "@id(\"%s-%d\")\n%s%s (%s, %s, %s)%s;\n", name, i, c.one("", "", c.notice()), effect,
			c.one("principal", `principal in Role::"r0"`, `principal in Role::"r1"`, `principal == user::"u1"`),
			c.one("action", `action == Action::"read"`, `action == Action::"write"`),
			c.one("resource", `resource == doc::"d0"`, `resource is doc`), c.condition())
	}
	return b.String()
}

func (c *neighbours) notice() string {
	return fmt.Sprintf("@obligation_notification(%q)\n@reason_user(\"Reason %d.\")\n", fmt.Sprintf(`{"to":"x","body":"%d"}`, c.IntN(100)), c.IntN(100))
}

func (c *neighbours) condition() string { return c.one(c.guard(), ` when { context has at }`) }

func (c *neighbours) guard() string {
	return c.one("", ` when { principal has team && principal.team == "t1" }`,
		fmt.Sprintf(` when { resource has level && resource.level > %d }`, c.IntN(4)),
		` when { resource.level > 1 }`, ` unless { context has flag && context.flag }`)
}

func (c *neighbours) entities() string {
	var all []string
	for i := range 3 {
		all = append(all, fmt.Sprintf(`{"uid":{"type":"user","id":"u%d"},"attrs":{"team":"t%d"},"parents":[{"type":"Role","id":"r%d"}]}`,
			i, c.IntN(2), c.IntN(3)))
		all = append(all, fmt.Sprintf(`{"uid":{"type":"doc","id":"d%d"},"attrs":%s,"parents":[]}`, i, c.one(`{}`, `{"level":1}`, `{"level":2}`, `{"level":3}`)))
	}
	return "[" + strings.Join(all, ",") + "]"
}

func (c *neighbours) config() string {
	return c.one("", "on_policy_error: deny_any\n", "clock: at\n") +
		c.one("", "parents:\n  roles: Role\n") +
		c.one("", "type_aliases:\n  person: user\n") +
		c.one("", "pep_authoritative: [doc, user]\n")
}

func (c *neighbours) request() string {
	return question(
		c.one("user", "user", "person")+fmt.Sprintf(" u%d ", c.IntN(4))+c.one("", `{"roles":["r0"]}`, `{"team":"t1","roles":["r1"]}`),
		c.one("read", "write"),
		fmt.Sprintf("doc d%d ", c.IntN(4))+c.one("", `{"level":2}`, `{"level":0}`),
		c.one("", `{"flag":true}`))
}
