package policytest_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/policytest"
)

func TestFromEntry(t *testing.T) {
	for name, tt := range map[string]struct{ line, want string }{
		"evaluation": {
			`{"index":1,"id":"0193","time":"2026-11-20T09:00:00.123456789Z","tenant":"acme","kind":"evaluation","request":{"subject":{"type":"user","id":"alice"},` +
				`"action":{"name":"tool.invoke","properties":{}},"resource":{"type":"tool","id":"jira:add","properties":{"labels":["a b","yes","1e3","7"],"size":2.50}},` +
				`"context":{"purpose":"line\nfeed, {brace}: \u0061","n":1e3}},"decision":true,"policies":["writes","alice"],"obligations":[{"id":"1","type":"notification","properties":{}}],"revision":"sha256:1","latency_us":0}`,
			`tests:
  - name: "user alice may tool.invoke tool jira:add (decision 0193)"
    time: "2026-11-20T09:00:00.123456789Z"
    request:
      subject: {type: user, id: alice}
      action: {name: tool.invoke, properties: {}}
      resource: {type: tool, id: "jira:add", properties: {labels: ["a b", "yes", "1e3", "7"], size: 2.5}}
      context: {"n": 1000, purpose: "line\nfeed, {brace}: a"}
    decision: true
    policies: [alice, writes]
    obligations: [notification]
`,
		},
		"batch": {
			`{"id":"b","time":"2026-11-20T10:00:00+01:00","kind":"evaluations","request":{"subject":{"type":"user","id":"7"},"action":{"name":"read"},` +
				`"evaluations":[{"resource":{"type":"doc","id":"1"}},{"resource":{"id":"2"}},{"resource":{"type":"doc","id":"3"}},{"resource":{"type":"doc","id":"4"}}],` +
				`"options":{"evaluations_semantic":"permit_on_first_permit"}},"evaluations":[{"decision":false},{"decision":false,"errors":[{"message":"/evaluations/1/resource/type is required"}]},{"decision":true,"policies":["p"]}],"latency_us":3}`,
			`tests:
  - name: "user 7 may not read doc 1 (decision b.0)"
    time: "2026-11-20T09:00:00Z"
    request:
      subject: {type: user, id: "7"}
      action: {name: read}
      resource: {type: doc, id: "1"}
    decision: false
    policies: []
    obligations: []
  - name: "user 7 may read doc 3 (decision b.2)"
    time: "2026-11-20T09:00:00Z"
    request:
      subject: {type: user, id: "7"}
      action: {name: read}
      resource: {type: doc, id: "3"}
    decision: true
    policies: [p]
    obligations: []
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := policytest.FromEntry([]byte(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("test (-want +got):\n%s", diff)
			}
			if _, err := policytest.Load(store(string(got))); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFromEntryRefuses(t *testing.T) {
	const request = `"request":{"subject":{"type":"user","id":"a"},"action":{"name":"b"},"resource":{"type":"doc","id":"c"},"context":{"n":NUMBER}}`
	for name, tt := range map[string]struct{ line, want string }{
		"reload":      {`{"id":"a","kind":"reload","decision":true}`, `the entry cannot be made into a test: decision a: it records no evaluation but "reload"`},
		"masked":      {`{"id":"a","kind":"evaluation",` + request + `,"decision":true,"masked":["/request/context/n","/request/subject/id"]}`, `the entry cannot be made into a test: decision a: it is masked at /request/context/n, /request/subject/id`},
		"incomplete":  {`{"id":"a","kind":"evaluation","request":{"subject":{"type":"user","id":"a"}},"decision":true}`, `the entry cannot be made into a test: decision a: /action is required`},
		"all invalid": {`{"id":"a","kind":"evaluations","request":{"evaluations":[{}]},"evaluations":[{"decision":false}]}`, `the entry cannot be made into a test: decision a: none of its items could be decided`},
		"digits":      {strings.Replace(`{"id":"a","kind":"evaluation",`+request+`,"decision":true}`, "NUMBER", "922337203685477.5807", 1), `the entry cannot be made into a test: decision a: /context/n has a number with more digits than YAML carries: 922337203685477.5807`},
		"large":       {strings.Replace(`{"id":"a","kind":"evaluation",`+request+`,"decision":true}`, "NUMBER", "123456789012345678901", 1), `the entry cannot be made into a test: decision a: its request would be read otherwise`},
		"no entry":    {`[]`, `read log entry: `},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policytest.FromEntry([]byte(strings.Replace(tt.line, "NUMBER", "1", 1)))
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error is %v, want %s", err, tt.want)
			}
			if errors.Is(err, policytest.ErrNoTest) != strings.HasPrefix(tt.want, "the entry") {
				t.Errorf("%v is ErrNoTest: %t", err, errors.Is(err, policytest.ErrNoTest))
			}
		})
	}
}

// What becomes a test reads back as the request that was logged.
func FuzzFromEntry(f *testing.F) {
	for _, context := range []string{
		`{}`, `{"a":[1,-0,2.50,1e3,null,true,{"b":{}}]}`, `{"~":"null","y":"","on":"off",".":"...","---":"--- a"}`,
		`{"\u0000\u2028\u0085":"\ud83d\ude00 \\ \" '"}`, `{"a: b":"#c","- d":"? e","!f":"&g","*h":"@i"}`, `{"multi\nline":"tab\t\r\n end "}`,
		`{"0x1f":"0o7","1_000":"12:30:45","2026-01-31":"2026-01-31T12:00:00Z",".inf":"-.INF",".nan":"1."}`, `{"<<":{"a":1},"=":"="}`, `{"n":18446744073709551615,"m":-9223372036854775808}`,
	} {
		f.Add("alice", context)
	}
	f.Fuzz(func(t *testing.T, id, context string) {
		line, err := json.Marshal(map[string]any{
			"id": "1", "kind": "evaluation", "time": "2026-11-20T09:00:00Z", "decision": true, "policies": []string{id},
			"request": map[string]any{
				"subject": map[string]any{"type": "user", "id": id}, "action": map[string]any{"name": id},
				"resource": map[string]any{"type": "doc", "id": id}, "context": jsontext.Value(context),
			},
		})
		if err != nil {
			t.Skip()
		}
		out, err := policytest.FromEntry(line)
		if err != nil {
			return
		}
		tests, err := policytest.Load(store(string(out)))
		if err != nil || len(tests) != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := tests[0]; got.Request.Subject.ID != id || got.Want.Policies[0] != id {
			t.Errorf("subject %q by %q, want %q", got.Request.Subject.ID, got.Want.Policies, id)
		}
		if !bytes.Equal(canonical(t, tests[0].Request.Context), canonical(t, jsontext.Value(context))) {
			t.Errorf("context is %s, want %s", tests[0].Request.Context, context)
		}
	})
}

func canonical(t *testing.T, v jsontext.Value) jsontext.Value {
	t.Helper()
	v = v.Clone()
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		t.Fatal(err)
	}
	return v
}
