package evaluation_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	indexRequests = flag.Int("index.n", 8_000, "how many requests to hold the index against")
	indexSeed     = flag.Uint64("index.seed", 1, "seed of the policies and requests")
)

// TestIndexIsLinear holds decisions, which try the policies that the index
// finds, against cedar-go's own loop, which tries every policy: same decision,
// same determining policies, same policies in error.
func TestIndexIsLinear(t *testing.T) {
	start := time.Now()
	seen := map[string]int{}
	for n := uint64(0); seen["requests"] < *indexRequests; n++ {
		s := newScene(rand.New(rand.NewPCG(*indexSeed, n)))
		if err := s.check(seen); err != nil {
			t.Fatalf("seed %d, scene %d: %v\n%s\n%s", *indexSeed, n, err, s.policies, s.entities)
		}
		seen["scenes"]++
	}
	t.Logf("seed %d, %v in %v", *indexSeed, seen, time.Since(start).Round(time.Millisecond))
	for _, what := range []string{"allowed", "several reasons", "errors"} {
		if seen[what] < *indexRequests/20 {
			t.Errorf("%s: only %d of %d requests", what, seen[what], *indexRequests)
		}
	}
}

// A scene is a policy store and requests, all at random.
type scene struct {
	policies string // Cedar
	entities string // JSON
	requests []cedar.Request
}

// requestsAScene is how many requests one policy store is asked.
const requestsAScene = 25

func newScene(r *rand.Rand) scene {
	var s scene
	for i := range 1 + r.IntN(60) {
		s.policies += fmt.Sprintf("@id(\"p%02d\") %s\n", i, sceneGrammar.write(r, "policy"))
	}
	s.entities = sceneEntities(r)
	for range requestsAScene {
		s.requests = append(s.requests, cedar.Request{
			Principal: pick(r, sceneUIDs...),
			Action:    pick(r, sceneActions...),
			Resource:  pick(r, sceneUIDs...),
			Context:   cedar.NewRecord(sceneAttributes(r)),
		})
	}
	return s
}

// check asks both loops and counts what it sees.
func (s scene) check(seen map[string]int) error {
	compiled, err := snapshot.Compile(snapshot.Archive{
		"policies.cedar": []byte(s.policies),
		"entities.json":  []byte(s.entities),
		"config.yaml":    []byte("on_policy_error: skip\nsubject_types: [User, Team, \"App::User\", Action]\n"),
	})
	if err != nil {
		return err
	}
	linear, err := newLinear(s.policies, s.entities)
	if err != nil {
		return err
	}
	for _, request := range s.requests {
		want := linear.decide(request)
		got, err := decideIndexed(compiled, request)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%v (-linear +index):\n%s", request, diff)
		}
		want.count(seen)
	}
	return nil
}

// A verdict is what a decision is made of.
type verdict struct {
	Allow           bool
	Reasons, Errors []string // in order
}

func (v verdict) count(seen map[string]int) {
	seen["requests"]++
	if v.Allow {
		seen["allowed"]++
	}
	if len(v.Reasons) > 1 {
		seen["several reasons"]++
	}
	if len(v.Errors) > 0 {
		seen["errors"]++
	}
}

// decideIndexed asks this package. Its policies must come in order by themselves.
func decideIndexed(s *snapshot.Snapshot, r cedar.Request) (verdict, error) {
	context, err := r.Context.MarshalJSON()
	if err != nil {
		return verdict{}, err
	}
	outcome, err := s.Decide(&authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: string(r.Principal.Type), ID: string(r.Principal.ID)},
		Action:   authzen.Action{Name: string(r.Action.ID)},
		Resource: authzen.Resource{Type: string(r.Resource.Type), ID: string(r.Resource.ID)},
		Context:  jsontext.Value(context),
	}, snapshot.Environment{})
	if err != nil {
		return verdict{}, err
	}
	return verdictOf(outcome), nil
}

func verdictOf(o *snapshot.Outcome) verdict {
	v := verdict{Allow: o.Decision, Reasons: o.Policies}
	for _, e := range o.Errors {
		v.Errors = append(v.Errors, e.Policy)
	}
	return v
}

// A linear decides as cedar-go does.
type linear struct {
	policies *cedar.PolicySet
	entities types.EntityMap
}

// newLinear reads policies, each with its @id, and entities as they are.
func newLinear(policies, entities string) (linear, error) {
	list, err := cedar.NewPolicyListFromBytes("policies.cedar", []byte(policies))
	if err != nil {
		return linear{}, err
	}
	l := linear{policies: cedar.NewPolicySet()}
	for _, p := range list {
		l.policies.Add(cedar.PolicyID(p.Annotations()["id"]), p)
	}
	return l, l.entities.UnmarshalJSON([]byte(entities))
}

func (l linear) decide(r cedar.Request) verdict {
	decision, diagnostic := cedar.Authorize(l.policies, l.entities, r)
	v := verdict{Allow: bool(decision)}
	for _, reason := range diagnostic.Reasons {
		v.Reasons = append(v.Reasons, string(reason.PolicyID))
	}
	for _, e := range diagnostic.Errors {
		v.Errors = append(v.Errors, string(e.PolicyID))
	}
	slices.Sort(v.Reasons)
	slices.Sort(v.Errors)
	return v
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// sceneGrammar makes policies of every kind of scope and of conditions that
// narrow it, or seem to: $ stands before what is put in.
var sceneGrammar = phrases{
	"policy": {
		`$effect (principal$scope, action$actions, resource$scope);`,
		`$effect (principal$scope, action$actions, resource$scope) $clause;`,
		`$effect (principal$scope, action$actions, resource$scope) $clause $clause;`,
		`$effect (principal, action, resource) $clause;`,
		`$effect (principal is $type, action, resource is $type) when { $variable in $entity && $conjunct };`,
		`$effect (principal, action$actions, resource) $clause $clause $clause;`,
	},
	"effect":  {`permit`, `permit`, `forbid`},
	"scope":   {``, ` == $entity`, ` in $entity`, ` is $type`, ` is $type in $entity`},
	"actions": {``, ` == $action`, ` in $action`, ` in []`, ` in [$action]`, ` in [$action, $action]`, ` in [$action, $action, $action]`},
	"clause":  {`when { $conjunct }`, `when { $conjunct && $conjunct }`, `when { $conjunct && ($conjunct && $conjunct) }`, `unless { $conjunct }`, `unless { $conjunct || $conjunct }`, `when { !($conjunct) }`},
	"conjunct": {
		`$test`, `$test`, `$test`, `$test`, `($test || $test)`, `($test || $test || $test)`, `($test && $test)`, `!($test)`, `(if $test then $test else $test)`,
		`$safe`, `$safe`, `($safe || $test)`, `$risky`, `($risky || $test)`, `($test || $risky)`, `!($risky && $test)`,
	},
	"test": {
		`$variable == $any`, `$any == $variable`, `$variable in $any`, `$variable in [$any]`, `$variable in [$any, $any]`, `$variable in []`, `$variable is $type`, `$variable is $type in $any`,
		`$variable is $type in [$any, $any]`, `principal == $entity || principal in $entity`, `resource in $entity || resource is $type`, `principal is $type || resource is $type`,
		`principal in $entity && action in $action`, `$variable != $any`, `$any in $any`, `principal == resource`, `principal in resource`, `principal is User in resource`,
	},
	"safe":     {`true`, `false`, `principal has n`, `resource has owner`, `context has n`, `context has r.b`, `(principal has n && principal.n == 1)`, `!(context has n)`},
	"risky":    {`principal.n == 1`, `resource.n < 2`, `context.n > 0`, `resource.owner == principal`, `principal in resource.owner`, `context.r.b`, `context.r has b`, `principal.r has b`, `1`, `"a"`, `principal`, `[true].contains(context.b)`, `context.n + 9223372036854775807 > 0`},
	"variable": {`principal`, `principal`, `resource`, `resource`, `action`},
	"any":      {`$entity`, `$entity`, `$entity`, `$action`, `principal`, `resource.owner`},
	"type":     {`User`, `Team`, `App::User`, `Action`},
	"entity":   {`User::"0"`, `User::"1"`, `User::"2"`, `Team::"0"`, `Team::"1"`, `Team::"2"`, `Team::"3"`, `App::User::"0"`, `App::User::"1"`, `User::"absent"`},
	"action":   {`Action::"0"`, `Action::"1"`, `Action::"2"`, `Action::"3"`, `Action::"absent"`},
}

// Phrases are the ways to write each kind of thing.
type phrases map[string][]string

var placeholder = regexp.MustCompile(`\$[a-z]+`)

func (g phrases) write(r *rand.Rand, kind string) string {
	return placeholder.ReplaceAllStringFunc(pick(r, g[kind]...), func(kind string) string { return g.write(r, kind[1:]) })
}

var (
	sceneUIDs    = uids("User", "0", "1", "2", "absent").and("App::User", "0", "1").and("Team", "0", "1", "2", "3")
	sceneActions = uids("Action", "0", "1", "2", "3", "absent")
)

type uidList []cedar.EntityUID

func uids(kind cedar.EntityType, ids ...cedar.String) uidList { return uidList(nil).and(kind, ids...) }

func (l uidList) and(kind cedar.EntityType, ids ...cedar.String) uidList {
	for _, id := range ids {
		l = append(l, cedar.NewEntityUID(kind, id))
	}
	return l
}

// sceneEntities makes the entities of a scene, in Cedar's JSON form: parents
// are of any type and come later in the list, so that there is no cycle. Now
// and then an entity is not stored.
func sceneEntities(r *rand.Rand) string {
	var stored []string
	for _, list := range []uidList{sceneUIDs, sceneActions} {
		for i, uid := range list {
			if uid.ID != "absent" && r.IntN(10) > 0 {
				stored = append(stored, sceneEntity(r, uid, list[i+1:]))
			}
		}
	}
	return "[" + strings.Join(stored, ",\n") + "]"
}

func sceneEntity(r *rand.Rand, uid cedar.EntityUID, above uidList) string {
	var parents []cedar.EntityUID
	for _, parent := range above {
		if r.IntN(4) == 0 {
			parents = append(parents, parent)
		}
	}
	e := cedar.Entity{UID: uid, Parents: cedar.NewEntityUIDSet(parents...)}
	if uid.Type != "Action" {
		attributes := sceneAttributes(r)
		if r.IntN(2) == 0 {
			attributes["owner"] = pick(r, sceneUIDs...)
		}
		e.Attributes = cedar.NewRecord(attributes)
	}
	text, err := e.MarshalJSON()
	return string(must(text, err))
}

func sceneAttributes(r *rand.Rand) cedar.RecordMap {
	attributes := cedar.RecordMap{}
	add := func(name cedar.String, value cedar.Value) {
		if r.IntN(3) > 0 {
			attributes[name] = value
		}
	}
	add("n", cedar.Long(r.IntN(3)))
	add("b", cedar.Boolean(r.IntN(2) == 0))
	add("r", cedar.NewRecord(cedar.RecordMap{"b": cedar.Boolean(r.IntN(2) == 0)}))
	add("kind", pick(r, cedar.String("x"), "y", "z"))
	add("tags", pick(r, cedar.NewSet(), cedar.NewSet(cedar.String("x")), cedar.NewSet(cedar.String("x"), cedar.String("y")), cedar.NewSet(cedar.Long(1), cedar.String("z"))))
	return attributes
}

// must is for what cannot fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(errors.Join(errors.New("cannot happen"), err))
	}
	return value
}
