package evaluation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A workload is a policy store of some size and the requests it is asked.
type workload struct {
	policies, entities string // Cedar text, Cedar JSON
	requests           []*authzen.EvaluationRequest
}

// newWorkload makes n policies over users, roles, folders and documents. Of a
// hundred policies sixty share one document with one user, thirty let a role
// act in a folder, and the rest forbid or test types; unscoped of a hundred
// have no scope at all.
func newWorkload(n, unscoped int) workload {
	const users, roles, folders, documents = 2000, 100, 1000, 5000
	random := rand.New(rand.NewPCG(1, uint64(n)))
	var policies, entities strings.Builder
	for i := range n {
		fmt.Fprintf(&policies, "@id(\"p%06d\")\n", i)
		user, role := random.IntN(users), random.IntN(roles)
		folder, document := random.IntN(folders), random.IntN(documents)
		switch kind := random.IntN(100); {
		case kind < unscoped:
			fmt.Fprintf(&policies, "permit (principal, action, resource) when { resource has grade && resource.grade == %d };\n", i)
		case kind < 60:
			fmt.Fprintf(&policies, "permit (principal == User::\"u%d\", action == Action::\"view\", resource == Document::\"d%d\");\n", user, document)
		case kind < 90:
			fmt.Fprintf(&policies, "permit (principal in Role::\"r%d\", action in [Action::\"view\", Action::\"edit\"], resource in Folder::\"f%d\") when { principal.level >= 3 };\n", role, folder)
		case kind < 95:
			fmt.Fprintf(&policies, "forbid (principal in Role::\"r%d\", action == Action::\"edit\", resource in Folder::\"f%d\") unless { principal.level > 5 };\n", role, folder)
		default:
			fmt.Fprintf(&policies, "permit (principal is Service, action == Action::\"a%d\", resource is Document);\n", i)
		}
	}
	entities.WriteByte('[')
	for i := range users {
		fmt.Fprintf(&entities, `{"uid":{"type":"User","id":"u%d"},"attrs":{"level":%d},"parents":[{"type":"Role","id":"r%d"},{"type":"Role","id":"r%d"}]},`,
			i, i%10, i%roles, (i*7)%roles)
	}
	for i := range documents {
		fmt.Fprintf(&entities, `{"uid":{"type":"Document","id":"d%d"},"attrs":{"grade":%d},"parents":[{"type":"Folder","id":"f%d"}]},`, i, i%7, i%folders)
	}
	entities.WriteString(`{"uid":{"type":"Folder","id":"f0"},"attrs":{},"parents":[]}]`)
	w := workload{policies: policies.String(), entities: entities.String()}
	for range 512 {
		w.requests = append(w.requests, &authzen.EvaluationRequest{
			Subject:  authzen.Subject{Type: "User", ID: fmt.Sprintf("u%d", random.IntN(users))},
			Action:   authzen.Action{Name: []string{"view", "edit"}[random.IntN(2)]},
			Resource: authzen.Resource{Type: "Document", ID: fmt.Sprintf("d%d", random.IntN(documents))},
		})
	}
	return w
}

func (w workload) archive() snapshot.Archive {
	return snapshot.Archive{"policies.cedar": []byte(w.policies), "entities.json": []byte(w.entities)}
}

// linear returns a decider that tries every policy, as cedar-go's own loop
// does.
func (w workload) linear(b testing.TB) func(*authzen.EvaluationRequest) bool {
	b.Helper()
	set, err := cedar.NewPolicySetFromBytes("policies.cedar", []byte(w.policies))
	if err != nil {
		b.Fatal(err)
	}
	var entities types.EntityMap
	if err := entities.UnmarshalJSON([]byte(w.entities)); err != nil {
		b.Fatal(err)
	}
	return func(r *authzen.EvaluationRequest) bool {
		decision, _ := cedar.Authorize(set, entities, cedar.Request{
			Principal: cedar.NewEntityUID(cedar.EntityType(r.Subject.Type), cedar.String(r.Subject.ID)),
			Action:    cedar.NewEntityUID("Action", cedar.String(r.Action.Name)),
			Resource:  cedar.NewEntityUID(cedar.EntityType(r.Resource.Type), cedar.String(r.Resource.ID)),
		})
		return bool(decision)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, unscoped := range []int{0, 1} {
		for _, n := range []int{10, 1_000, 10_000, 100_000} {
			w := newWorkload(n, unscoped)
			name := fmt.Sprintf("unscoped=%d%%/policies=%d", unscoped, n)
			b.Run(name+"/indexed", func(b *testing.B) {
				s, err := snapshot.Compile(w.archive())
				if err != nil {
					b.Fatal(err)
				}
				env := snapshot.Environment{Time: time.Unix(0, 0)}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := s.Decide(w.requests[i%len(w.requests)], env); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/linear", func(b *testing.B) {
				decide := w.linear(b)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					decide(w.requests[i%len(w.requests)])
				}
			})
		}
	}
}
