package schemas_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/schematest"
)

const wholeDenial = `{"evaluation_id": "e-1", "expires_at": "2026-10-26T09:30:00Z", "binding_token": "a.b.c",
	"evaluated_at": "2026-10-26T09:20:00Z", "reason": "approval_required", "template": "sre"}`

// requests says how the body that a schema describes is read. The complete
// body has every member the schema names.
var requests = []struct {
	schema   string
	complete string
	read     func(body []byte) error   // what is wrong with the body as a whole
	faults   func(body []byte) []error // and with its parts
}{
	{
		schema: "EvaluationRequest",
		complete: `{
			"subject": {"type": "user", "id": "alice", "properties": {"role": "admin"}},
			"action": {"name": "read", "properties": {"soft": true}},
			"resource": {"type": "record", "id": "record-1", "properties": {"status": "active"}},
			"context": {"time": "2026-10-26T09:30:00Z"}
		}`,
		read:   unmarshal[authzen.EvaluationRequest],
		faults: only(unmarshal[authzen.EvaluationRequest]),
	},
	{
		schema: "EvaluationsRequest",
		complete: `{
			"subject": {"type": "user", "id": "alice", "properties": {"role": "admin"}},
			"action": {"name": "read", "properties": {"soft": true}},
			"resource": {"type": "record", "id": "record-1", "properties": {"status": "active"}},
			"context": {"time": "2026-10-26T09:30:00Z"},
			"evaluations": [{
				"subject": {"type": "user", "id": "bob", "properties": {"role": "admin"}},
				"action": {"name": "write", "properties": {"soft": false}},
				"resource": {"type": "record", "id": "record-2", "properties": {"status": "archived"}},
				"context": {"time": "2026-10-26T09:30:01Z"}
			}],
			"options": {"evaluations_semantic": "execute_all"}
		}`,
		read:   unmarshal[authzen.EvaluationsRequest],
		faults: batchFaults,
	},
	{
		schema: "SubjectSearchRequest",
		complete: `{
			"subject": {"type": "user"},
			"action": {"name": "read", "properties": {"soft": true}},
			"resource": {"type": "record", "id": "record-1", "properties": {"status": "active"}},
			"context": {"time": "2026-10-26T09:30:00Z"},
			"page": {"token": "AAEC", "limit": 10, "properties": {"sort": "id"}}
		}`,
		read:   unmarshal[authzen.SubjectSearchRequest],
		faults: only(unmarshal[authzen.SubjectSearchRequest]),
	},
	{
		schema: "ResourceSearchRequest",
		complete: `{
			"subject": {"type": "user", "id": "alice", "properties": {"role": "admin"}},
			"action": {"name": "read", "properties": {"soft": true}},
			"resource": {"type": "record"},
			"context": {"time": "2026-10-26T09:30:00Z"},
			"page": {"token": "AAEC", "limit": 10, "properties": {"sort": "id"}}
		}`,
		read:   unmarshal[authzen.ResourceSearchRequest],
		faults: only(unmarshal[authzen.ResourceSearchRequest]),
	},
	{
		schema: "ActionSearchRequest",
		complete: `{
			"subject": {"type": "user", "id": "alice", "properties": {"role": "admin"}},
			"resource": {"type": "record", "id": "record-1", "properties": {"status": "active"}},
			"context": {"time": "2026-10-26T09:30:00Z"},
			"page": {"token": "AAEC", "limit": 10, "properties": {"sort": "id"}}
		}`,
		read:   unmarshal[authzen.ActionSearchRequest],
		faults: only(unmarshal[authzen.ActionSearchRequest]),
	},
	{
		schema: "AuthorizeRequest",
		complete: `{
			"tenant_id": "tenant-xyz",
			"actor": {"actor_id": "agent-1", "actor_type": "agent", "roles": ["orchestrator"], "department_id": "dept-eng", "act": {"sub": "alice"}},
			"action": "tool.invoke",
			"resource": {"type": "tool", "id": "jira:create_ticket", "labels": {"impact": "write"}},
			"purpose": "resolve an issue",
			"context": {"workflow_id": "wf-abc"}
		}`,
		read:   unmarshal[authzen.AuthorizeRequest],
		faults: only(unmarshal[authzen.AuthorizeRequest]),
	},
	{
		schema: "Submission",
		complete: `{
			"subject": {"type": "user", "id": "alice", "properties": {"role": "admin"}},
			"action": {"name": "read", "properties": {"soft": true}},
			"resource": {"type": "record", "id": "record-1", "properties": {"status": "active"}},
			"items": [{
				"action": {"name": "read", "properties": {"soft": true}},
				"resource": {"type": "record", "id": "record-1", "properties": {"status": "active"}},
				"requested_access": {"emergency": true},
				"denial": ` + wholeDenial + `
			}],
			"context": {"ticket": "T-1"},
			"denial": ` + wholeDenial + `,
			"requested_access": {"requested_until": "2026-10-26T09:30:00Z"},
			"callback": {"endpoint": "https://pep.example.com/done", "state": "s-1", "events": ["approved"]},
			"client": {"id": "gateway"}
		}`,
		read:   unmarshal[authzen.Submission],
		faults: only(unmarshal[authzen.Submission]),
	},
	{
		schema:   "Cancellation",
		complete: `{"reason": "superseded", "comment": "asked again"}`,
		read:     unmarshal[authzen.Cancellation],
		faults:   only(unmarshal[authzen.Cancellation]),
	},
	{
		schema: "ApprovalRequest",
		complete: `{
			"request": {
				"tenant_id": "tenant-xyz",
				"actor": {"actor_id": "agent-1", "actor_type": "agent", "roles": ["orchestrator"], "department_id": "dept-eng", "act": {"sub": "alice"}},
				"action": "tool.invoke",
				"resource": {"type": "tool", "id": "jira:create_ticket", "labels": {"impact": "write"}},
				"purpose": "resolve an issue",
				"context": {"workflow_id": "wf-abc"}
			},
			"approval": {"template": "sre", "evaluation_id": "e-1", "expires_at": "2026-10-26T09:30:00Z", "binding_token": "a.b.c"}
		}`,
		read:   unmarshal[authzen.ApprovalRequest],
		faults: only(unmarshal[authzen.ApprovalRequest]),
	},
}

// AZ-44, AZ-98: what a schema requires is what the decoder demands.
func TestSchemasRequireWhatTheDecoderRequires(t *testing.T) {
	for _, r := range requests {
		var stated, demanded []string
		for _, object := range objects(t, parse(t, r.schema), decode(t, r.complete), "") {
			if diff := cmp.Diff(slices.Sorted(maps.Keys(object.schema.members)), object.names); diff != "" {
				t.Errorf("%s%s: members of the complete body (-schema +body):\n%s", r.schema, object.path, diff)
			}
			for _, name := range object.names {
				path := object.path + "/" + name
				if slices.Contains(object.schema.required, name) {
					stated = append(stated, path)
				}
				if r.read(replaced(t, r.complete, path, removed{})) != nil {
					demanded = append(demanded, path)
				}
			}
		}
		if diff := cmp.Diff(demanded, stated); diff != "" {
			t.Errorf("%s: required (-decoder +schema):\n%s", r.schema, diff)
		}
	}
}

// Each value of a complete body is taken away and replaced by values of every
// kind; the schema and the decoder must agree on each of the results.
func TestSchemaAndDecoderAgree(t *testing.T) {
	values := []any{removed{}, nil, true, 0, -1.5, "", "x", []any{}, []any{nil}, []any{5}, []any{"x"},
		[]any{map[string]any{}}, map[string]any{}, map[string]any{"type": "x"}, map[string]any{"unknown": []any{}}}
	for _, r := range requests {
		agree := agreement(t, r.schema, r.faults)
		agree(t, []byte(r.complete))
		for _, path := range append(paths(decode(t, r.complete), ""), "/unknown") {
			for _, value := range values {
				agree(t, replaced(t, r.complete, path, value))
			}
		}
	}
}

// The decoder is stricter than a schema can say. Nothing else may be in this
// list: the schema accepts these bodies, the decoder does not.
func TestDecoderIsStricter(t *testing.T) {
	const (
		evaluation = `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"},"context":`
		authorize  = `{"tenant_id":"t","actor":{"actor_id":"a","actor_type":"agent"},"action":"x","resource":{"type":"tool","id":"i"},"purpose":"p","context":`
	)
	nested := strings.Repeat("[", authzen.MaxDepth) + strings.Repeat("]", authzen.MaxDepth)
	tests := []struct {
		name, schema, body string
		read               func([]byte) error
	}{
		{"a member named twice", "EvaluationRequest", evaluation + `{},"context":{}}`, unmarshal[authzen.EvaluationRequest]},
		{"a member named twice, once escaped", "EvaluationRequest", evaluation + `{},"c\u006fntext":{}}`, unmarshal[authzen.EvaluationRequest]},
		{"a member of the context named twice", "EvaluationRequest", evaluation + `{"a":1,"a":1}}`, unmarshal[authzen.EvaluationRequest]},
		{"an unknown member named twice", "EvaluationRequest", evaluation + `{},"x":1,"x":1}`, unmarshal[authzen.EvaluationRequest]},
		{"bytes that are not UTF-8", "EvaluationRequest", evaluation + "{\"a\":\"\xff\"}}", unmarshal[authzen.EvaluationRequest]},
		{"a lone surrogate", "EvaluationRequest", evaluation + `{"a":"\ud800"}}`, unmarshal[authzen.EvaluationRequest]},
		{"nesting", "EvaluationRequest", evaluation + `{"a":` + nested + `}}`, unmarshal[authzen.EvaluationRequest]},
		{"an item that no default completes", "EvaluationsRequest", `{"evaluations":[{}]}`, batchFault},
		{"no items and no complete request", "EvaluationsRequest", `{}`, batchFault},
		{"supported_obligations in the context", "AuthorizeRequest", authorize + `{"supported_obligations":[]}}`, authorizeFault},
		{"two purposes", "AuthorizeRequest", authorize + `{"purpose":"q"}}`, authorizeFault},
	}
	for _, test := range tests {
		if err := schematest.Compile(t, test.schema)([]byte(test.body)); err != nil {
			t.Errorf("%s: the schema refuses: %v", test.name, err)
		}
		if test.read([]byte(test.body)) == nil {
			t.Errorf("%s: the decoder accepts", test.name)
		}
	}
}

func FuzzSchemaAndDecoderAgree(f *testing.F) {
	var agreements []func(*testing.T, []byte)
	for _, r := range requests {
		f.Add([]byte(r.complete))
		agreements = append(agreements, agreement(f, r.schema, r.faults))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, agree := range agreements {
			agree(t, body)
		}
	})
}

// agreement returns a func that fails the test where the schema and the
// decoder differ about a body, other than as in TestDecoderIsStricter.
func agreement(t testing.TB, name string, faults func([]byte) []error) func(*testing.T, []byte) {
	validate := schematest.Compile(t, name)
	return func(t *testing.T, body []byte) {
		if !jsontext.Value(body).IsValid() || tooDeep(body) {
			return
		}
		refusal, found := validate(body), faults(body)
		if refusal != nil && len(found) == 0 {
			t.Errorf("%s: the decoder accepts %s, the schema does not: %v", name, body, refusal)
		}
		if name == "EvaluationsRequest" {
			found = slices.DeleteFunc(found, isMissing)
		}
		if refusal == nil && len(found) > 0 {
			t.Errorf("%s: the schema accepts %s, the decoder does not: %v", name, body, found)
		}
	}
}

// isMissing reports whether err is about a member that is not there. Whether
// a batch needs it depends on its items and its defaults together.
func isMissing(err error) bool {
	var invalid *authzen.ValidationError
	return errors.As(err, &invalid) && invalid.Reason == "is required"
}

func tooDeep(body []byte) bool {
	decoder := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		if _, err := decoder.ReadToken(); err != nil {
			return false
		}
		if decoder.StackDepth() > authzen.MaxDepth {
			return true
		}
	}
}

func unmarshal[T any](body []byte) error {
	return authzen.Unmarshal(body, new(T))
}

func only(read func([]byte) error) func([]byte) []error {
	return func(body []byte) []error {
		return collect(read(body))
	}
}

// batchFaults returns what is wrong with a batch: with the whole, with an
// item, with a default. The decoder looks at a default only where an item
// needs it, and a schema cannot.
func batchFaults(body []byte) []error {
	var batch authzen.EvaluationsRequest
	if err := authzen.Unmarshal(body, &batch); err != nil {
		return collect(err)
	}
	found := collect(
		readDefault[authzen.Entity](batch.Subject),
		readDefault[authzen.Action](batch.Action),
		readDefault[authzen.Entity](batch.Resource),
	)
	for _, item := range batch.Items() {
		if item.Err != nil {
			found = append(found, item.Err)
		}
	}
	if len(batch.Evaluations) == 0 {
		_, err := batch.Single()
		found = append(found, collect(err)...)
	}
	return found
}

func readDefault[T any](value jsontext.Value) error {
	if value == nil {
		return nil
	}
	return unmarshal[T](value)
}

// collect returns those of errs that are errors.
func collect(errs ...error) []error {
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func batchFault(body []byte) error {
	return errors.Join(batchFaults(body)...)
}

func authorizeFault(body []byte) error {
	var r authzen.AuthorizeRequest
	if err := authzen.Unmarshal(body, &r); err != nil {
		return nil // the table is about what comes after
	}
	_, err := r.Evaluation()
	return err
}
