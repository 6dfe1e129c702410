package evaluation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

var (
	searches   = flag.Int("search.n", 3_000, "how many searches to hold against asking for each")
	searchSeed = flag.Uint64("search.seed", 1, "seed of the policies and searches")
)

// TestSearchIsExact holds searches, page by page, against asking for each entity
// and each action that there is.
func TestSearchIsExact(t *testing.T) {
	start := time.Now()
	log := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	seen := map[string]int{}
	for n := uint64(0); seen["searches"] < *searches; n++ {
		s := newSearchScene(rand.New(rand.NewPCG(*searchSeed, n)))
		if err := s.check(t, log, seen); err != nil {
			t.Fatalf("seed %d, scene %d: %v\n%s\n%s", *searchSeed, n, err, s.policies, s.entities)
		}
		seen["scenes"]++
	}
	t.Logf("seed %d, %v in %v", *searchSeed, seen, time.Since(start).Round(time.Millisecond))
	for _, what := range []string{"found", "found on further pages", "found with obligations", "found nothing", "found everybody"} {
		if seen[what] < *searches/100 {
			t.Errorf("%s: only %d of %d searches", what, seen[what], *searches)
		}
	}
}

// A searchScene is a policy store and hunts, all at random.
type searchScene struct {
	scene
	config string
	hunts  []hunt
}

// A hunt is a search to be: a request that leaves one of its entities open.
type hunt struct {
	open    string
	request authzen.EvaluationRequest
	limit   *int // of a page
}

// searchesAScene is how many hunts one policy store is asked.
const searchesAScene = 20

func newSearchScene(r *rand.Rand) searchScene {
	s := searchScene{config: fmt.Sprintf("on_policy_error: %s\nparents: {groups: Team}\nsubject_types: [User, Team, \"App::User\"]\n",
		pick(r, "deny", "skip", "skip", "skip", "deny_any"))}
	for i := range 1 + r.IntN(12) {
		s.policies += fmt.Sprintf("@id(\"p%02d\") %s\n", i, searchGrammar.write(r, "policy"))
	}
	s.entities = sceneEntities(r)
	for range searchesAScene {
		s.hunts = append(s.hunts, newHunt(r))
	}
	return s
}

func newHunt(r *rand.Rand) hunt {
	principal, resource := pick(r, sceneUIDs...), pick(r, sceneUIDs...)
	if r.IntN(5) == 0 {
		resource = principal
	}
	q := hunt{open: pick(r, "subject", "resource", "resource", "action"), request: authzen.EvaluationRequest{
		Subject:  authzen.Subject{Type: string(principal.Type), ID: string(principal.ID), Properties: said(r)},
		Action:   authzen.Action{Name: string(pick(r, sceneActions...).ID)},
		Resource: authzen.Resource{Type: string(resource.Type), ID: string(resource.ID), Properties: said(r)},
		Context:  jsontext.Value(pick(r, `{}`, `{"n":1,"b":true,"r":{"b":true}}`, `{"n":2,"supported_obligations":["custom","notification"]}`)),
	}}
	if r.IntN(2) == 0 {
		limit := r.IntN(4)
		q.limit = &limit
	}
	return q
}

// said is what a request may say of an entity.
func said(r *rand.Rand) jsontext.Value {
	if r.IntN(2) == 0 {
		return nil
	}
	return jsontext.Value(pick(r, `{"b":true}`, `{"n":1,"kind":"x"}`, `{"groups":["0","2"]}`, `{"tags":["x"],"owner":"nobody"}`))
}

// searchGrammar adds to what scenes say what a search looks up.
var searchGrammar = func() phrases {
	g := maps.Clone(sceneGrammar)
	g["effect"] = []string{`permit`, `permit`, `permit`, `permit`, `permit`, `forbid`}
	g["policy"] = append(slices.Clone(g["policy"]),
		`@approval("sre") permit (principal, action, resource$scope) $clause;`,
		`@obligation_notification("{\"to\":\"{{subject.id}}\",\"body\":\"{{action.name}} {{resource.id}}\"}") permit (principal$scope, action, resource) $clause;`,
		`permit (principal, action$actions, resource) when { $look };`,
		`permit (principal$scope, action, resource$scope) when { $look && $look };`,
		`permit (principal, action, resource) when { $look || $look } unless { $look };`)
	g["conjunct"] = append(slices.Clone(g["conjunct"]), `$look`, `($look || $look)`, `($look && $test || $look)`)
	g["look"] = []string{
		`$variable has owner && $variable.owner == $any`, `resource.owner == principal`, `principal.owner == resource`, `$variable.kind == "x"`, `"y" == $variable.kind`,
		`$variable.tags.contains("x")`, `["x", "y"].contains($variable.kind)`, `[$entity, $entity].contains($variable)`, `$variable.b`, `$variable.n == 1`,
		`principal in resource.owner`, `resource in principal.owner`, `principal.owner in resource`, `$variable.tags.containsAny(["y", "q"])`, `["x"].containsAny($variable.tags)`,
		`principal.kind == resource.kind`, `resource.tags.contains(principal.kind)`, `principal.tags.contains(resource.kind)`, `context has n && $variable.n == context.n`,
		`$variable.tags.containsAll(["x"])`, `$variable.r == {b: true}`, `$variable.kind != "x"`, `(if context has b then $variable.b else $variable.kind == "z")`,
		`$variable in [$entity, $entity]`, `$variable is $type && $variable.kind == "y"`, `$variable.kind like "*"`, `($variable.kind == "y" || $variable == $entity)`,
	}
	return g
}()

// check asks every hunt both ways and counts what it sees.
func (s searchScene) check(t *testing.T, log *decisionlog.Log, seen map[string]int) error {
	engine := evaluation.NewEngine(log, evaluation.Config{})
	archive := snapshot.Archive{"policies.cedar": []byte(s.policies), "entities.json": []byte(s.entities), "config.yaml": []byte(s.config)}
	if _, err := engine.Reload(t.Context(), evaluation.Change{Archive: archive, Cause: "start"}); err != nil {
		return err
	}
	compiled, err := engine.Snapshots().For("")
	if err != nil {
		return err
	}
	for _, q := range s.hunts {
		want, everybody, err := q.ask(compiled, s.universe(q))
		if err != nil {
			return fmt.Errorf("%+v: %w", q, err)
		}
		got, pages, err := q.search(engine)
		if err != nil {
			return fmt.Errorf("%+v (-loop +search): %w", q, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%+v (-loop +search):\n%s", q, diff)
		}
		q.count(seen, got, pages, everybody)
	}
	return nil
}

// universe lists the names of what can be found.
func (s searchScene) universe(q hunt) []string {
	var stored []struct {
		UID struct {
			Type string `json:"type"`
			ID   string `json:"id"`
		} `json:"uid"`
		Parents []struct {
			Type string `json:"type"`
			ID   string `json:"id"`
		} `json:"parents"`
	}
	if err := json.Unmarshal([]byte(s.entities), &stored); err != nil {
		panic(err)
	}
	wanted := map[string]string{"subject": q.request.Subject.Type, "resource": q.request.Resource.Type, "action": "Action"}[q.open]
	names, groups := map[string]bool{}, map[string]bool{}
	for _, e := range stored {
		if e.UID.Type == wanted {
			names[e.UID.ID] = true
		}
		for _, parent := range e.Parents {
			if q.open == "action" && parent.Type == "Action" {
				groups[parent.ID] = true
			}
		}
	}
	for _, uid := range sceneActions {
		if q.open == "action" && strings.Contains(s.policies, uid.String()) {
			names[string(uid.ID)] = true
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return groups[name] })
	return slices.Sorted(maps.Keys(names))
}

// ask asks for each of the names and returns those that are allowed, each with
// the types of its obligations, and whether that is all of them.
func (q hunt) ask(s *snapshot.Snapshot, names []string) (found []string, everybody bool, err error) {
	unreadable := 0
	for _, name := range names {
		r := q.request
		switch q.open {
		case "subject":
			r.Subject.ID, r.Subject.Properties = name, nil
		case "resource":
			r.Resource.ID, r.Resource.Properties = name, nil
		case "action":
			r.Action = authzen.Action{Name: name}
		}
		outcome, err := s.Decide(&r, snapshot.Environment{})
		if err != nil {
			unreadable++
			continue
		}
		if result, ok := allowed(name, outcome, string(r.Context)); ok {
			found = append(found, result)
		}
	}
	if q.open == "action" && unreadable > 0 { // whatever the action
		return []string{"invalid"}, false, nil
	}
	return found, len(found) == len(names) && len(names) > 1, nil
}

func allowed(name string, o *snapshot.Outcome, context string) (result string, ok bool) {
	for _, obligation := range o.Obligations {
		if !strings.Contains(context, `"`+obligation.Type+`"`) {
			return "", false
		}
	}
	return foundAs(name, o.Obligations), o.Decision
}

// search asks for all pages.
func (q hunt) search(e *evaluation.Engine) (found []string, pages int, err error) {
	page := &authzen.PageRequest{Limit: q.limit}
	for {
		part, next, err := q.page(e, page)
		var invalid *authzen.ValidationError
		if errors.As(err, &invalid) && q.open == "action" {
			return []string{"invalid"}, 1, nil
		}
		if err != nil {
			return nil, 0, err
		}
		if q.limit != nil && len(part) > *q.limit {
			return nil, 0, fmt.Errorf("a page of %d has %d", *q.limit, len(part))
		}
		found = append(found, part...)
		pages++
		if next == nil || next.NextToken == "" {
			return found, pages, nil
		}
		if next.Count != len(part) {
			return nil, 0, fmt.Errorf("a page of %d says %d", len(part), next.Count)
		}
		page.Token = next.NextToken
		if q.limit != nil && *q.limit == 0 { // it would not advance
			one := 1
			page, q.limit = &authzen.PageRequest{Limit: &one}, &one
		}
	}
}

func (q hunt) page(e *evaluation.Engine, page *authzen.PageRequest) (found []string, next *authzen.Page, err error) {
	r, ctx := q.request, context.Background()
	if q.open == "action" {
		out, err := e.SearchActions(ctx, evaluation.Call{}, &authzen.ActionSearchRequest{Subject: r.Subject, Resource: r.Resource, Context: r.Context, Page: page})
		if err != nil {
			return nil, nil, err
		}
		for _, action := range out.Results {
			found = append(found, foundAs(action.Name, action.Obligations))
		}
		return found, out.Page, nil
	}
	var out *authzen.EntitySearchResponse
	if q.open == "subject" {
		out, err = e.SearchSubjects(ctx, evaluation.Call{}, &authzen.SubjectSearchRequest{Subject: authzen.Searched{Type: r.Subject.Type}, Action: r.Action, Resource: r.Resource, Context: r.Context, Page: page})
	} else {
		out, err = e.SearchResources(ctx, evaluation.Call{}, &authzen.ResourceSearchRequest{Subject: r.Subject, Action: r.Action, Resource: authzen.Searched{Type: r.Resource.Type}, Context: r.Context, Page: page})
	}
	if err != nil {
		return nil, nil, err
	}
	for _, entity := range out.Results {
		found = append(found, foundAs(entity.ID, entity.Obligations))
	}
	return found, out.Page, nil
}

// foundAs is a result as text: its name and its obligations, but for their ids.
func foundAs(name string, obligations []authzen.Obligation) string {
	for _, o := range obligations {
		name += " " + o.Type + string(o.Properties)
	}
	return name
}

func (q hunt) count(seen map[string]int, found []string, pages int, everybody bool) {
	seen["searches"]++
	seen[q.open]++
	text := strings.Join(found, ",")
	switch {
	case len(found) == 0:
		seen["found nothing"]++
	case everybody:
		seen["found everybody"]++
	default:
		seen["found"]++
	}
	if pages > 1 {
		seen["found on further pages"]++
	}
	if strings.Contains(text, authzen.ObligationCustom) || strings.Contains(text, authzen.ObligationNotification) {
		seen["found with obligations"]++
	}
}
