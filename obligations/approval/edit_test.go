package approval_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/capability"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// deploy is a call of a tool with a digest, as a gateway asks about it. Its arguments and their schema
// are for the approver.
const deploy = `{
	"subject": {"type": "agent", "id": "agent-7"}, "action": {"name": "tools/call"}, "resource": {"type": "tool", "id": "ci:deploy"},
	"context": {"workflow_id": "wf-1", "gateway": {"server": "ci", "tool": "deploy", "call_digest": "sha256:1"}}
}`

const deployArguments = `{"target":"production","replicas":3,"note":"now"}`

// editing returns a desk whose template lets approvers change target and replicas, and a task for
// deploy with a schema.
func editing(t *testing.T, schema string, change func(*authzen.ApprovalTemplate)) (*desk, string) {
	t.Helper()
	d := open(t, with(func(terms *authzen.ApprovalTemplate) {
		terms.Edit, terms.Uses = []string{"target", "replicas"}, 2
		change(terms)
	}))
	d.config.CheckArguments = capability.CheckArguments
	d.reopen(t)
	sub := d.submission(t, deploy)
	context, err := jsonobject.Parse(sub.Context)
	if err != nil {
		t.Fatal(err)
	}
	context.Put("arguments", jsontext.Value(deployArguments))
	if schema != "" {
		context.Put("input_schema", jsontext.Value(schema))
	}
	if sub.Context, err = context.Encode(); err != nil {
		t.Fatal(err)
	}
	task, err := d.Submit(t.Context(), gateway, "", sub)
	if err != nil {
		t.Fatal(err)
	}
	return d, task.Task.ID
}

func asIs(*authzen.ApprovalTemplate) {}

func setting(arguments string) approval.Decision {
	return approval.Decision{Decision: "approve", Arguments: jsontext.Value(arguments)}
}

// An approval with changed arguments is for a call with exactly these, of which the PEP says the
// digest. Nothing else of the call may differ.
func TestEditedArguments(t *testing.T) {
	d, id := editing(t, "", asIs)
	r, err := d.Decide(t.Context(), id, approver("carol"), setting(`{"target":"staging","replicas":3}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"note":"now","replicas":3,"target":"staging"}`
	if e := r.Items[0].Edit; e == nil || string(e.Arguments) != want || fmt.Sprint(e.Changed) != "[target]" {
		t.Fatalf("%+v", e)
	}
	task, err := d.Status(t.Context(), gateway, id)
	if err != nil || string(task.Result.Arguments) != want {
		t.Fatalf("the PEP gets %s, %v", task.Result.Arguments, err)
	}
	claim := task.Result.Approval
	if claim.ArgumentsDigest != "" {
		t.Fatal("the service says the digest in place of the PEP")
	}
	digest := func(arguments string) authzen.Approval {
		said := claim
		if said.ArgumentsDigest, err = jsonobject.Digest(jsontext.Value(arguments)); err != nil {
			t.Fatal(err)
		}
		return said
	}
	again := strings.Replace(deploy, "sha256:1", "sha256:2", 1)
	for name, test := range map[string]struct {
		call  string
		claim authzen.Approval
		want  bool
	}{
		"the edited call":                {again, digest(want), true},
		"with its arguments":             {strings.Replace(again, `"workflow_id"`, `"arguments":`+want+`,"workflow_id"`, 1), digest(`{"target":"staging","note":"now","replicas":3}`), true},
		"without a digest":               {again, claim, false},
		"the requested arguments":        {deploy, digest(deployArguments), false},
		"other arguments":                {again, digest(`{"note":"now","replicas":4,"target":"staging"}`), false},
		"other arguments in the context": {strings.Replace(again, `"workflow_id"`, `"arguments":`+deployArguments+`,"workflow_id"`, 1), digest(want), false},
		"another tool":                   {strings.Replace(again, `"ci:deploy"`, `"ci:destroy"`, 1), digest(want), false},
		"another server":                 {strings.Replace(again, `"server": "ci"`, `"server": "cd"`, 1), digest(want), false},
		"another member of the context":  {strings.Replace(again, "wf-1", "wf-2", 1), digest(want), false},
		"one member more":                {strings.Replace(again, `"workflow_id"`, `"env":"x","workflow_id"`, 1), digest(want), false},
		"another subject":                {strings.Replace(again, "agent-7", "agent-8", 1), digest(want), false},
	} {
		got := d.again(t, test.call, test.claim)
		if (got.Approval != nil) != test.want || !test.want && got.Reason != authzen.ReasonOutOfScope {
			t.Errorf("%s: %+v", name, got)
		}
	}
	record := string(d.records[1].Body)
	was, _ := jsonobject.Digest(jsontext.Value(deployArguments))
	for _, part := range []string{`"arguments_digest":"` + was + `"`, `"changed_arguments":["target"]`, `"changed_arguments_digest":"` + digest(want).ArgumentsDigest + `"`} {
		if !strings.Contains(record, part) {
			t.Errorf("the record has no %s: %s", part, record)
		}
	}
	if strings.Contains(record, "staging") {
		t.Errorf("the record has an argument: %s", record)
	}
}

// What the template does not let approvers change, and values that do not fit the input schema of the
// tool, are refused. Nothing is decided then.
func TestEditIsRefused(t *testing.T) {
	const schema = `{"type":"object","properties":{"target":{"enum":["staging","production"]},"replicas":{"type":"integer","minimum":1,"maximum":5}}}`
	for name, test := range map[string]struct {
		schema   string
		change   func(*authzen.ApprovalTemplate)
		decision approval.Decision
		want     string // path of the fault; "" for none
	}{
		"a value that is allowed":       {schema, asIs, setting(`{"target":"staging"}`), ""},
		"no value that differs":         {schema, asIs, setting(`{"target":"production"}`), ""},
		"another member":                {schema, asIs, setting(`{"note":"later"}`), "/arguments/note"},
		"a new member":                  {schema, asIs, setting(`{"force":true}`), "/arguments/force"},
		"another case":                  {schema, asIs, setting(`{"Target":"staging"}`), "/arguments/Target"},
		"a value outside an enum":       {schema, asIs, setting(`{"target":"moon"}`), "/arguments/target"},
		"a value over the maximum":      {schema, asIs, setting(`{"replicas":6}`), "/arguments/replicas"},
		"a value of another type":       {schema, asIs, setting(`{"replicas":"3"}`), "/arguments/replicas"},
		"a schema elsewhere":            {`{"$ref":"https://example.com/schema"}`, asIs, setting(`{"replicas":4}`), "/arguments"},
		"no object":                     {schema, asIs, setting(`["staging"]`), "/arguments"},
		"null":                          {schema, asIs, setting(`null`), "/arguments"},
		"a denial":                      {schema, asIs, approval.Decision{Decision: "deny", Arguments: jsontext.Value(`{"target":"staging"}`)}, "/arguments"},
		"a template that allows none":   {schema, func(t *authzen.ApprovalTemplate) { t.Edit = nil }, setting(`{"target":"staging"}`), "/arguments/target"},
		"a template for several people": {schema, func(t *authzen.ApprovalTemplate) { t.Quorum = 2 }, setting(`{"target":"staging"}`), "-"},
	} {
		d, id := editing(t, test.schema, test.change)
		r, err := d.Decide(t.Context(), id, approver("carol"), test.decision)
		var invalid *authzen.ValidationError
		switch {
		case test.want == "" && (err != nil || r.Status() != authzen.TaskApproved):
			t.Errorf("%s: %v", name, err)
		case test.want == "-" && !errors.Is(err, approval.ErrTaskState):
			t.Errorf("%s: %v", name, err)
		case strings.HasPrefix(test.want, "/") && (!errors.As(err, &invalid) || invalid.Path != test.want):
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
		if r, err := d.Request(t.Context(), id); err != nil || test.want != "" && len(r.Items[0].Votes) > 0 {
			t.Errorf("%s: %+v %v", name, r.Items[0].Votes, err)
		}
	}
}
