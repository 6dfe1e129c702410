package conformance_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/conformance"
	"github.com/policy-service/policy-service/schemas/authzen"
)

func TestTwin(t *testing.T) {
	conformance.Run(t, start(t, twin()))
}

// The checks are all there: as many as each level and plan has in its source.
func TestLevelsAreComplete(t *testing.T) {
	count := func(target conformance.Target) map[string]int {
		counts := make(map[string]int)
		for _, level := range conformance.Levels(target) {
			counts[level.Name] = len(level.Checks)
			names := make(map[string]bool)
			for _, check := range level.Checks {
				names[check.Name] = true
			}
			if len(names) != len(level.Checks) {
				t.Errorf("%s: a name is used twice", level.Name)
			}
		}
		return counts
	}
	want := map[string]int{
		"basic-core": 16, "basic-properties": 4, "batch-core": 11, "batch-properties": 3,
		"search-core": 16, "search-properties": 3, "transport": 5, "discovery": 6,
		"metadata-static": 3, "metadata-discovery": 8,
		"authzen-pdp-evaluation-test-plan/static": 31, "authzen-pdp-evaluation-test-plan/discovery": 31,
		"authzen-pdp-evaluations-test-plan/static": 27, "authzen-pdp-evaluations-test-plan/discovery": 27,
		"authzen-pdp-subject-search-test-plan/static": 25, "authzen-pdp-subject-search-test-plan/discovery": 25,
		"authzen-pdp-resource-search-test-plan/static": 20, "authzen-pdp-resource-search-test-plan/discovery": 20,
		"authzen-pdp-action-search-test-plan/static": 22, "authzen-pdp-action-search-test-plan/discovery": 22,
	}
	if diff := cmp.Diff(want, count(conformance.Target{BaseURL: identifier})); diff != "" {
		t.Errorf("checks without credentials (-want +got):\n%s", diff)
	}
	want["authzen-pdp-evaluation-test-plan/static"] += 2
	want["authzen-pdp-evaluation-test-plan/discovery"] += 2
	if diff := cmp.Diff(want, count(conformance.Target{BaseURL: identifier, Authorization: bearer})); diff != "" {
		t.Errorf("checks with credentials (-want +got):\n%s", diff)
	}
}

// A PDP with one thing wrong fails the checks that are about that thing.
func TestChecksCanFail(t *testing.T) {
	for name, tt := range map[string]struct {
		wrong func(http.Handler) http.Handler
		fails []string
	}{
		"always true":          {replace(`"decision":false`, `"decision":true`), []string{"c-2-2-2", "c-2-2-4", "c-2-2-7", "c-3-2-2", "c-3-4-1"}},
		"always false":         {replace(`"decision":true`, `"decision":false`), []string{"c-2-2-1", "c-2-2-5", "c-2-2-6", "c-3-2-5", "c-3-4-2", "c-3-4-3"}},
		"decision is text":     {replace(`"decision":true`, `"decision":"true"`), []string{"c-2-3-1", "c-3-3-3"}},
		"context is an array":  {replace(`"decision":false`, `"decision":false,"context":[]`), []string{"c-2-3-2", "c-3-2-2"}},
		"context is null":      {replace(`"decision":false`, `"decision":false,"context":null`), []string{"c-2-3-2"}},
		"decision named twice": {replace(`"decision":true`, `"decision":true,"decision":true`), []string{"c-2-2-1"}},
		"decision beside":      {replace(`{"evaluations"`, `{"decision":false,"evaluations"`), []string{"c-3-3-4"}},
		"batch of one":         {single(`{"evaluations":[`, `]}`), []string{"c-3-4-2", "c-3-4-3", "authzen-pdp-evaluations-missing-evaluations-array-backward-compat"}},
		"single and batch":     {single(``, `,"evaluations":[]}`), []string{"authzen-pdp-evaluations-empty-evaluations-array-backward-compat"}},
		"in reverse":           {reverse, []string{"c-3-3-2", "authzen-pdp-evaluations-batch-with-fixture-decisions-validated"}},
		"one too few":          {replace(`,{"decision":true}]`, `]`), []string{"c-3-2-1", "c-3-3-1", "authzen-pdp-evaluations-permit-on-first-permit"}},
		"padded":               {replace(`[{"decision":true},{"decision":false}]`, `[{"decision":true},{"decision":false},{"decision":false}]`), []string{"authzen-pdp-evaluations-deny-on-first-deny"}},
		"a number in batches":  {numbered(), []string{"authzen-pdp-evaluations-idempotency"}},
		"text":                 {header("Content-Type", "text/plain"), []string{"c-2-2-1", "c-5-2", "c-6-2", "EnsureDiscoveryMetadataResponseValid"}},
		"problem":              {header("Content-Type", "application/problem+json"), []string{"c-2-2-1"}},
		"no echo":              {header("X-Request-ID", ""), []string{"c-2-5-1", "c-5-4", "authzen-pdp-evaluation-x-request-id-echoed", "authzen-pdp-evaluations-x-request-id-echoed"}},
		"no scheme":            {header("WWW-Authenticate", ""), []string{"authzen-pdp-evaluation-missing-credentials-returns-401"}},
		"never unauthorized":   {rewrite(func(r *http.Request) { r.Header.Set("Authorization", bearer) }), []string{"authzen-pdp-evaluation-missing-credentials-returns-401", "authzen-pdp-evaluation-invalid-credentials-returns-401"}},
		"any method":           {rewrite(anyMethod), []string{"authzen-pdp-evaluation-reject-get-method", "authzen-pdp-evaluations-reject-put-method"}},
		"any content type":     {rewrite(func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }), []string{"c-2-4-3", "authzen-pdp-evaluation-reject-non-json-content-type"}},
		"no parameters":        {rewrite(parameters), []string{"authzen-pdp-evaluations-accept-content-type-with-charset"}},
		"nothing is refused":   {instead(http.StatusBadRequest, http.StatusOK), []string{"c-2-4-1", "c-2-4-2", "c-2-4-4", "c-2-4-5", "c-2-4-6", "c-5-3", "authzen-pdp-evaluation-reject-top-level-array", "authzen-pdp-evaluation-reject-malformed-json", "authzen-pdp-evaluations-reject-empty-body", "authzen-pdp-evaluations-unknown-semantic-value"}},
		"unprocessable":        {instead(http.StatusBadRequest, http.StatusUnprocessableEntity), []string{"c-2-4-1", "authzen-pdp-evaluation-missing-subject"}},
		"created":              {instead(http.StatusOK, http.StatusCreated), []string{"c-2-2-1", "c-6-1"}},
		"no metadata":          {metadata(`.*`, ``), []string{"c-6-1", "c-6-6", "GetPDPDynamicServerConfiguration", "authzen-pdp-evaluation-missing-action"}},
		"another's metadata":   {metadata(`("policy_decision_point":"[^"]*)"`, `$1/"`), []string{"c-6-5", "EnsurePolicyDecisionPointMatchesIssuer"}},
		"no evaluation":        {metadata(`"access_evaluation_endpoint":"[^"]*",`, ``), []string{"c-6-3", "CheckPDPServerConfiguration"}},
		"plain endpoint":       {metadata(`"access_evaluations_endpoint":"https:`, `"access_evaluations_endpoint":"http:`), []string{"c-6-4", "CheckPDPServerConfiguration"}},
		"endpoint is a number": {metadata(`"access_evaluations_endpoint":"[^"]*"`, `"access_evaluations_endpoint":1`), []string{"c-6-4", "authzen-pdp-evaluations-execute-all-explicit"}},
		"identifier and query": {metadata(`("policy_decision_point":"[^"]*)"`, `$1?a=b"`), []string{"c-6-3"}},
		"null in metadata":     {metadata(`^{`, `{"search_action_endpoint":null,`), []string{"EnsureDiscoveryMetadataParamsNotEmpty"}},
		"empty in metadata":    {metadata(`"capabilities":\[.*\]`, `"capabilities":[]`), []string{"EnsureDiscoveryMetadataParamsNotEmpty"}},
		"odd capability":       {metadata(`"urn:example:capability"`, `null`), []string{"c-6-4", "EnsureMetadataCapabilitiesValid"}},
		"signed":               {metadata(`^{`, `{"signed_metadata":"a.b.c",`), []string{"c-6-5", "ExtractPDPSignedMetadata"}},
		"nobody is found":      {edit(`"results":\[.*\]`, `"results":[]`), []string{"c-4-2-1", "c-4-3-1", "c-4-4-1", "c-4-5-2", "authzen-pdp-subject-search-request-with-page-limit"}},
		"another type":         {replace(`"type":"user","id":"bob"`, `"type":"team","id":"bob"`), []string{"c-4-2-1", "authzen-pdp-subject-search-unknown-page-fields-ignored"}},
		"results say more":     {replace(`"id":"bob"`, `"id":"bob","properties":{}`), []string{"c-4-2-1", "authzen-pdp-subject-search-subject-search-with-context"}},
		"no results":           {replace(`"results"`, `"found"`), []string{"c-4-5-1", "c-4-6-1", "authzen-pdp-action-search-unknown-entity-identifier"}},
		"one page for ever":    {edit(`"next_token":"[^"]*"`, `"next_token":"alice"`), []string{"c-4-5-2", "c-4-5-3"}},
		"page is behind":       {edit(`\{("page":\{[^}]*\}),("results":\[.*\])\}`, `{$2,$1}`), []string{"c-4-5-1"}},
		"no next token":        {edit(`"next_token":"[^"]*",`, ``), []string{"c-4-5-1"}},
		"strangers are found":  {edit(`"results":\[\]`, `"results":[{"type":"user","id":"eve"}]`), []string{"c-4-6-1", "c-4-6-2"}},
		"an id is a filter":    {filtered, []string{"c-4-2-3", "authzen-pdp-subject-search-extra-subject-id-ignored"}},
		"endpoints elsewhere":  {metadata(`/access/v1/`, `/elsewhere/v1/`), []string{"authzen-pdp-evaluation-fixture-request-permit-decision"}},
	} {
		t.Run(name, func(t *testing.T) {
			failed := failures(start(t, tt.wrong(twin())))
			for _, name := range tt.fails {
				if !failed[name] {
					t.Errorf("%s did not fail; %q did", name, slices.Sorted(maps.Keys(failed)))
				}
			}
		})
	}
}

// An identifier that is not what a PEP may be given fails whatever the PDP is.
func TestIdentifierCanFail(t *testing.T) {
	for _, identifier := range []string{"http://pdp.example.com", "https://", "https://pdp.example.com/?a", "https://pdp.example.com/#a", "::"} {
		target := start(t, twin())
		target.Identifier = identifier
		failed := failures(target)
		for _, name := range []string{"c-5-1", "ValidatePDPIdentifier"} {
			if !failed[name] {
				t.Errorf("%q: %s did not fail", identifier, name)
			}
		}
	}
}

func failures(target conformance.Target) map[string]bool {
	failed := make(map[string]bool)
	for _, level := range conformance.Levels(target) {
		for _, check := range level.Checks {
			if check.Run() != nil {
				failed[check.Name] = true
			}
		}
	}
	return failed
}

// rewrite changes every request on its way in.
func rewrite(change func(*http.Request)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			change(r)
			next.ServeHTTP(w, r)
		})
	}
}

func anyMethod(r *http.Request) {
	if r.URL.Path != authzen.PathMetadata {
		r.Method = http.MethodPost
	}
}

func parameters(r *http.Request) {
	if strings.Contains(r.Header.Get("Content-Type"), ";") {
		r.Header.Del("Content-Type")
	}
}

// tamper changes every answer on its way out.
func tamper(change func(r *http.Request, w *httptest.ResponseRecorder)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recorded := httptest.NewRecorder()
			next.ServeHTTP(recorded, r)
			change(r, recorded)
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(recorded.Code)
			w.Write(recorded.Body.Bytes())
		})
	}
}

func replace(old, new string) func(http.Handler) http.Handler {
	return tamper(func(_ *http.Request, w *httptest.ResponseRecorder) {
		w.Body = bytes.NewBuffer(bytes.ReplaceAll(w.Body.Bytes(), []byte(old), []byte(new)))
	})
}

// single puts the one decision of a batch without items between two texts.
func single(before, after string) func(http.Handler) http.Handler {
	return tamper(func(r *http.Request, w *httptest.ResponseRecorder) {
		body := w.Body.String()
		if r.URL.Path != authzen.PathEvaluations || !strings.HasPrefix(body, `{"decision"`) {
			return
		}
		if before == "" {
			body = body[:len(body)-1]
		}
		w.Body = bytes.NewBufferString(before + body + after)
	})
}

// reverse mistakes the last decision for the first.
var reverse = tamper(func(_ *http.Request, w *httptest.ResponseRecorder) {
	list, ok := strings.CutPrefix(strings.TrimSuffix(w.Body.String(), "]}"), `{"evaluations":[`)
	if !ok {
		return
	}
	items := strings.Split(list, ",")
	slices.Reverse(items)
	w.Body = bytes.NewBufferString(`{"evaluations":[` + strings.Join(items, ",") + `]}`)
})

// numbered tells batches apart.
func numbered() func(http.Handler) http.Handler {
	var count atomic.Int64
	return tamper(func(_ *http.Request, w *httptest.ResponseRecorder) {
		number := `{"number":` + strconv.FormatInt(count.Add(1), 10) + `,"evaluations"`
		w.Body = bytes.NewBuffer(bytes.Replace(w.Body.Bytes(), []byte(`{"evaluations"`), []byte(number), 1))
	})
}

func header(name, value string) func(http.Handler) http.Handler {
	return tamper(func(_ *http.Request, w *httptest.ResponseRecorder) {
		w.Header().Del(name)
		if value != "" {
			w.Header().Set(name, value)
		}
	})
}

func instead(of, status int) func(http.Handler) http.Handler {
	return tamper(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if w.Code == of {
			w.Code = status
		}
	})
}

// filtered finds no subject for a search that has a subject's id.
func filtered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.URL.Path == authzen.PathSearchSubject && bytes.HasPrefix(body, []byte(`{"subject":{"type":"user","id"`)) {
			write(w, http.StatusOK, authzen.EntitySearchResponse{Results: []authzen.FoundEntity{}})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// edit changes every answer.
func edit(pattern, with string) func(http.Handler) http.Handler {
	expression := regexp.MustCompile(pattern)
	return tamper(func(_ *http.Request, w *httptest.ResponseRecorder) {
		w.Body = bytes.NewBuffer(expression.ReplaceAll(w.Body.Bytes(), []byte(with)))
	})
}

// metadata changes the metadata alone. Metadata of which nothing is left is
// not found.
func metadata(pattern, with string) func(http.Handler) http.Handler {
	expression := regexp.MustCompile(pattern)
	return tamper(func(r *http.Request, w *httptest.ResponseRecorder) {
		if r.URL.Path != authzen.PathMetadata {
			return
		}
		w.Body = bytes.NewBuffer(expression.ReplaceAll(w.Body.Bytes(), []byte(with)))
		if w.Body.Len() == 0 {
			w.Code = http.StatusNotFound
		}
	})
}
