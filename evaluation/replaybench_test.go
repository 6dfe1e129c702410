package evaluation_test

import (
	"testing"

	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// BenchmarkReplay decides one logged entry again, by the policies that decided
// it and by a candidate.
func BenchmarkReplay(b *testing.B) {
	l := newLogged(b, replayed)
	l.ask(question(`user alice {"department":"d","roles":["a","b"]}`, "read", `doc 1 {"category":"internal","impact":"read"}`, `{"purpose":"p","session":"s"}`))
	line := l.lines("", "")[1]
	candidate, err := snapshot.CompileStore(archive(replayed))
	if err != nil {
		b.Fatal(err)
	}
	replay := replay.New(candidate, l.log.ReadArchive)
	b.ReportAllocs()
	for b.Loop() {
		if err := replay.Add(line); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
