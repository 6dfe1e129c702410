package authzen_test

import (
	"strings"
	"testing"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// bodies are requests as a PEP sends them.
var bodies = []struct {
	name      string
	body      string
	allocs    float64 // at most
	unmarshal func([]byte) error
}{
	{"plain", evaluation, 20, into[authzen.EvaluationRequest]},
	{
		"properties",
		`{"subject":{"type":"user","id":"alice","properties":{"role":"admin","department":"eng"}},` +
			`"action":{"name":"delete","properties":{"soft":true}},` +
			`"resource":{"type":"record","id":"record-1","properties":{"status":"active","owner":"bob"}},` +
			`"context":{"time":"2026-10-26T09:30:00Z","ip":"203.0.113.7"}}`,
		30, into[authzen.EvaluationRequest],
	},
	{"unknown members", `{"a":{"b":[1,2,3]},"c":"d",` + evaluation[1:], 20, into[authzen.EvaluationRequest]},
	{"authorize", authorize, 20, into[authzen.AuthorizeRequest]},
	{"search", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record"},"page":{"limit":100}}`, 15, into[authzen.ResourceSearchRequest]},
	{"batch of 50", batchOf(50), 500, unmarshalBatch},
}

// batchOf is a batch with defaults and so many items.
func batchOf(items int) string {
	item := `{"resource":{"type":"record","id":"record-1","properties":{"status":"active","owner":"bob"}}}`
	return `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"evaluations":[` + strings.Repeat(item+",", items-1) + item + `]}`
}

// unmarshalBatch reads a batch and its items.
func unmarshalBatch(body []byte) error {
	var batch authzen.EvaluationsRequest
	if err := authzen.Unmarshal(body, &batch); err != nil {
		return err
	}
	for _, item := range batch.Items() {
		if item.Err != nil {
			return item.Err
		}
	}
	return nil
}

func into[T any](body []byte) error {
	var v T
	return authzen.Unmarshal(body, &v)
}

// What is allocated are the strings and texts that are kept, the names of the
// members, and the request: 14 for a plain one. The race detector adds a few.
func TestUnmarshalAllocations(t *testing.T) {
	for _, b := range bodies {
		body := []byte(b.body)
		got := testing.AllocsPerRun(200, func() {
			if err := b.unmarshal(body); err != nil {
				t.Fatal(err)
			}
		})
		if most := b.allocs * raceFactor; got > most {
			t.Errorf("%s: %v allocations, want at most %v", b.name, got, most)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	for _, bench := range bodies {
		b.Run(bench.name, func(b *testing.B) {
			body := []byte(bench.body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.unmarshal(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
