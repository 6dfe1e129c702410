package evaluation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// noisy is a policy whose answers are long.
var noisy = `@id("noisy") @obligation_custom("{\"action\":\"` + strings.Repeat("x", 4000) + `\"}") permit (principal, action, resource is Doc);`

const supported = `"context":{"supported_obligations":["custom"]}`

// A batch whose answer would be too large is refused, and decides nothing.
func TestLargeAnswers(t *testing.T) {
	ask := func(e *evaluation.Engine, items int) (*authzen.EvaluationsResponse, error) {
		return e.Evaluations(t.Context(), evaluation.Call{}, batch(t, `{"subject":{"type":"User","id":"u"},"action":{"name":"a"},"resource":{"type":"Doc","id":"d"},`+supported+
			`,"evaluations":[`+strings.TrimSuffix(strings.Repeat("{},", items), ",")+`]}`))
	}
	e, l := engine(t, noisy, evaluation.Config{MaxAnswer: 100_000})
	if _, err := ask(e, 1000); !errors.Is(err, evaluation.ErrLargeAnswer) {
		t.Errorf("4 MB: %v", err)
	}
	if log := entries(t, l); len(log) != 0 {
		t.Errorf("recorded %d entries", len(log))
	}
	answer, err := ask(e, 20)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(answer)
	if err != nil || len(text) > 100_000 || len(text) < 80_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	byDefault, _ := engine(t, noisy, evaluation.Config{})
	if _, err := ask(byDefault, 1000); err != nil {
		t.Errorf("4 MB, by default: %v", err)
	}
}

// A page of results ends where it is large enough, and the next goes on there.
func TestLargePages(t *testing.T) {
	var entities strings.Builder
	for i := range 60 {
		fmt.Fprintf(&entities, `,{"uid":{"type":"Doc","id":"d%02d"},"attrs":{},"parents":[]}`, i)
	}
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	e := evaluation.NewEngine(l, evaluation.Config{MaxAnswer: 40_000})
	store := snapshot.Archive{"policies.cedar": []byte(noisy), "entities.json": []byte("[" + entities.String()[1:] + "]")}
	if _, err := e.Reload(t.Context(), evaluation.Change{Archive: store, Cause: "start"}); err != nil {
		t.Fatal(err)
	}
	var found []string
	pages, token := 0, ""
	for ; pages == 0 || token != ""; pages++ {
		var req authzen.ResourceSearchRequest
		body := `{"subject":{"type":"User","id":"u"},"action":{"name":"a"},"resource":{"type":"Doc"},` + supported + `,"page":{"token":"` + token + `"}}`
		if err := authzen.Unmarshal([]byte(body), &req); err != nil {
			t.Fatal(err)
		}
		answer, err := e.SearchResources(t.Context(), evaluation.Call{}, &req)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(answer); err != nil || len(text) > 50_000 {
			t.Errorf("a page of %d bytes, %v", len(text), err)
		}
		for _, r := range answer.Results {
			found = append(found, r.ID)
		}
		token = answer.Page.NextToken
	}
	if want := ids("d%02d", 60); pages < 6 || !slices.Equal(found, want) {
		t.Errorf("%d pages have %v", pages, found)
	}
}

// A search that cannot end in its time says so early. One that can ends.
func TestLongSearches(t *testing.T) {
	var entities strings.Builder
	const many = 20_000
	for i := range many {
		fmt.Fprintf(&entities, `,{"uid":{"type":"Doc","id":"d%05d"},"attrs":{"n":%d},"parents":[]}`, i, i)
	}
	store := snapshot.Archive{
		"policies.cedar": []byte(`@id("odd") permit (principal, action, resource is Doc) when { resource.n * 3 < -1 };`),
		"entities.json":  []byte("[" + entities.String()[1:] + "]"),
	}
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	e := evaluation.NewEngine(l, evaluation.Config{})
	if _, err := e.Reload(t.Context(), evaluation.Change{Archive: store, Cause: "start"}); err != nil {
		t.Fatal(err)
	}
	search := func(within time.Duration) error {
		var req authzen.ResourceSearchRequest
		if err := authzen.Unmarshal([]byte(`{"subject":{"type":"User","id":"u"},"action":{"name":"a"},"resource":{"type":"Doc"}}`), &req); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := e.SearchResources(ctx, evaluation.Call{}, &req)
		return err
	}
	start := time.Now()
	if err := search(time.Hour); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(start)
	start = time.Now()
	if err := search(whole / 10); !errors.Is(err, snapshot.ErrTooLong) {
		t.Errorf("in a tenth of %v: %v after %v", whole, err, time.Since(start))
	}
}

// What a search foresees, by a clock.
func TestForesight(t *testing.T) {
	for _, test := range []struct {
		name                                 string
		after                                time.Duration
		candidates, enough, decided, results int
		late                                 bool
	}{
		{"at once", time.Millisecond, 1_000_000, 1_000_000, 64, 0, false},
		{"a tenth in a tenth", 200 * time.Millisecond, 10_000, 10_000, 1_000, 0, false},
		{"a hundredth in a fifth", 400 * time.Millisecond, 10_000, 10_000, 100, 0, true},
		{"a hundredth, but enough results soon", 400 * time.Millisecond, 10_000, 20, 100, 10, false},
		{"a hundredth, and few results", 400 * time.Millisecond, 10_000, 2_000, 100, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				look := evaluation.NewForesight(ctx, test.candidates, test.enough)
				time.Sleep(test.after)
				if err := look(ctx, test.decided, test.results); errors.Is(err, snapshot.ErrTooLong) != test.late {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
