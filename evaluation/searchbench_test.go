package evaluation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// An office is a policy store in which much can be searched: documents in
// folders, which people read for every reason that a policy can give.
const (
	officeDocuments = 100_000
	officeUsers     = 10_000
	officeFolders   = 1_000
	officePolicies  = 2_000 // a role's to a folder, and shares of one document
)

func newOffice() snapshot.Archive {
	random := rand.New(rand.NewPCG(5, 5))
	var policies, entities strings.Builder
	policies.WriteString(`
@id("owner") permit (principal, action, resource is Doc) when { resource.owner == principal };
@id("public") permit (principal, action == Action::"view", resource is Doc) when { resource.public };
@id("shared") permit (principal, action == Action::"view", resource is Doc) when { resource.shared.contains(principal) };
@id("department") permit (principal, action == Action::"view", resource is Doc) when { resource.dept == principal.dept && principal.level >= resource.level };
@id("hold") forbid (principal, action, resource is Doc) when { resource.hold };
`)
	for i := range officePolicies / 2 {
		fmt.Fprintf(&policies, "@id(\"role%d\") permit (principal in Role::\"r%d\", action == Action::\"view\", resource in Folder::\"f%d\");\n", i, random.IntN(100), random.IntN(officeFolders))
		fmt.Fprintf(&policies, "@id(\"share%d\") permit (principal == User::\"u%05d\", action == Action::\"view\", resource == Doc::\"d%06d\");\n", i, random.IntN(officeUsers), random.IntN(officeDocuments))
	}
	entities.WriteByte('[')
	for i := range officeUsers {
		fmt.Fprintf(&entities, `{"uid":{"type":"User","id":"u%05d"},"attrs":{"dept":"d%d","level":%d},"parents":[{"type":"Role","id":"r%d"}]},`, i, i%50, i%6, i%100)
	}
	for i := range officeDocuments {
		fmt.Fprintf(&entities, `{"uid":{"type":"Doc","id":"d%06d"},"attrs":{"owner":{"__entity":{"type":"User","id":"u%05d"}},"public":%t,"hold":%t,"dept":"d%d","level":%d,"shared":[{"__entity":{"type":"User","id":"u%05d"}}]},"parents":[{"type":"Folder","id":"f%d"}]},`,
			i, random.IntN(officeUsers), i%20 == 0, i%50 == 1, random.IntN(50), random.IntN(6), random.IntN(officeUsers), i%officeFolders)
	}
	entities.WriteString(`{"uid":{"type":"Folder","id":"f0"},"attrs":{},"parents":[]}]`)
	return snapshot.Archive{"policies.cedar": []byte(policies.String()), "entities.json": []byte(entities.String())}
}

// BenchmarkSearch holds searches against asking for each entity, by this package
// and as cedar-go would.
func BenchmarkSearch(b *testing.B) {
	office := newOffice()
	engine := evaluation.NewEngine(openLog(b, b.TempDir(), decisionlog.Config{Durability: decisionlog.Batched}), evaluation.Config{MaxResults: 1 << 20, MaxCandidates: 1 << 20})
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if _, err := engine.Reload(b.Context(), evaluation.Change{Archive: office, Cause: "start"}); err != nil {
				b.Fatal(err)
			}
		}
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "MiB")
	})
	compiled, err := engine.Snapshots().For("")
	if err != nil {
		b.Fatal(err)
	}
	linear, err := newLinear(string(office["policies.cedar"]), string(office["entities.json"]))
	if err != nil {
		b.Fatal(err)
	}
	documents, people := ids("d%06d", officeDocuments), ids("u%05d", officeUsers)

	cpu(b, "resources/search", func() int { return searchDocuments(b, engine) })
	cpu(b, "resources/each", func() int { return each(documents, func(id string) bool { return decides(b, compiled, "u00042", id) }) })
	cpu(b, "resources/linear", func() int { return each(documents, func(id string) bool { return linear.views("u00042", id) }) })
	cpu(b, "subjects/search", func() int { return searchPeople(b, engine) })
	cpu(b, "subjects/each", func() int { return each(people, func(id string) bool { return decides(b, compiled, id, "d000042") }) })
	cpu(b, "subjects/linear", func() int { return each(people, func(id string) bool { return linear.views(id, "d000042") }) })
}

// cpu reports the processor time of the whole process for each run, and how
// much is found.
func cpu(b *testing.B, name string, run func() int) {
	b.Run(name, func(b *testing.B) {
		found, start := 0, processTime(b)
		for b.Loop() {
			found = run()
		}
		b.ReportMetric(float64(processTime(b)-start)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		b.ReportMetric(float64(found), "found")
	})
}

func processTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func ids(format string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return all
}

func each(ids []string, ask func(id string) bool) (found int) {
	for _, id := range ids {
		if ask(id) {
			found++
		}
	}
	return found
}

var view = authzen.Action{Name: "view"}

func decides(b *testing.B, s *snapshot.Snapshot, user, document string) bool {
	out, err := s.Decide(&authzen.EvaluationRequest{
		Subject: authzen.Subject{Type: "User", ID: user}, Action: view, Resource: authzen.Resource{Type: "Doc", ID: document},
	}, snapshot.Environment{})
	if err != nil {
		b.Fatal(err)
	}
	return out.Decision
}

func (l linear) views(user, document string) bool {
	decision, _ := cedar.Authorize(l.policies, l.entities, cedar.Request{
		Principal: types.NewEntityUID("User", cedar.String(user)), Action: types.NewEntityUID("Action", "view"), Resource: types.NewEntityUID("Doc", cedar.String(document)),
	})
	return bool(decision)
}

func searchDocuments(b *testing.B, e *evaluation.Engine) int {
	out, err := e.SearchResources(context.Background(), evaluation.Call{}, &authzen.ResourceSearchRequest{
		Subject: authzen.Subject{Type: "User", ID: "u00042"}, Action: view, Resource: authzen.Searched{Type: "Doc"},
	})
	if err != nil {
		b.Fatal(err)
	}
	return len(out.Results)
}

func searchPeople(b *testing.B, e *evaluation.Engine) int {
	out, err := e.SearchSubjects(context.Background(), evaluation.Call{}, &authzen.SubjectSearchRequest{
		Subject: authzen.Searched{Type: "User"}, Action: view, Resource: authzen.Resource{Type: "Doc", ID: "d000042"},
	})
	if err != nil {
		b.Fatal(err)
	}
	return len(out.Results)
}
