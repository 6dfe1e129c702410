//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

const (
	batchItems   = 50
	batchCount   = 64
	searchCount  = 64
	evaluations  = "/access/v1/evaluations"
	searchByTool = "/access/v1/search/resource"
)

// A load is bodies for one path, and the answers that they must get.
type load struct {
	name    string
	path    string
	bodies  []string
	answers []string
}

func (l *load) add(body, answer string) {
	l.bodies, l.answers = append(l.bodies, body), append(l.answers, answer)
}

// lines is the file that wrk reads.
func (l load) lines() string { return strings.Join(l.bodies, "\n") + "\n" }

// singles asks one request at a time.
func singles(w *workload, path string) load {
	l := load{name: "single", path: path}
	for _, r := range w.Requests {
		l.add(encode(r), w.Answer(r))
	}
	return l
}

// batches asks fifty requests at a time.
func batches(w *workload) load {
	l := load{name: fmt.Sprintf("batch of %d", batchItems), path: evaluations}
	for i := range batchCount {
		var items, answers []string
		for j := range batchItems {
			r := w.Requests[(i*batchItems+j)%len(w.Requests)]
			items, answers = append(items, encode(r)), append(answers, w.Answer(r))
		}
		l.add(`{"evaluations":[`+strings.Join(items, ",")+`]}`, `{"evaluations":[`+strings.Join(answers, ",")+`]}`)
	}
	return l
}

// searches asks which stored tools a user may invoke; a search takes properties
// of tools from the store alone. Members of admins may invoke nearly all tools,
// and are left out.
func searches(w *workload) load {
	l := load{name: "resource search", path: searchByTool}
	for _, r := range w.Requests {
		if len(l.bodies) == searchCount {
			break
		}
		if r.Action.Name != toolInvoke || slices.Contains(w.users[r.Subject.ID].Teams, "admins") {
			continue
		}
		r.Resource.Properties = resourceProperties{}
		var results []string
		for _, id := range w.toolIDs {
			r.Resource.ID = id
			if w.Allows(r) {
				results = append(results, fmt.Sprintf(`{"type":"tool","id":%q}`, id))
			}
		}
		r.Resource.ID = ""
		l.add(encode(r), `{"results":[`+strings.Join(results, ",")+`]}`)
	}
	return l
}

// check holds an engine to every answer of a load. A floor must only answer.
func (e *engine) check(ctx context.Context, l load) error {
	for i, body := range l.bodies {
		got, err := post(ctx, e.server.URL+l.path, body)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", e.name, err, body)
		}
		if want := l.answers[i]; !e.constant && strings.TrimSpace(got) != want {
			return fmt.Errorf("%s answers %s, not %s, to %s", e.name, got, want, body)
		}
	}
	return nil
}
