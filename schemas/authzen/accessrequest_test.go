package authzen_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// submission has every member that the Access Request Profile has.
const submission = `{"subject":{"type":"user","id":"alice"},
	"resource":{"type":"record","id":"record-1"},"action":{"name":"read"},
	"items":[{"resource":{"type":"record","id":"record-2"},"action":{"name":"read"},"requested_access":{},"denial":{"expires_at":"t"}}],
	"context":{"ticket":"T-1"},
	"denial":{"evaluation_id":"e","expires_at":"t","binding_token":"b","evaluated_at":"t","reason":"r","template":"x"},
	"requested_access":{"requested_until":"t","emergency":true},
	"callback":{"endpoint":"https://pep.example.com","state":"s","events":["approved"]},
	"client":{"id":"c","name":"n","actor":{"id":"a"},"source":{"session_id":"s"}}}`

// AR-41, AR-42, AR-48, AR-52: which members a submission must have, and of
// which type each is.
func TestSubmissionMembers(t *testing.T) {
	for _, test := range []struct {
		path, wanted string
		required     bool
	}{
		{"/subject", "an object", true},
		{"/subject/type", "a string", true},
		{"/subject/id", "a string", true},
		{"/resource", "an object", false},
		{"/resource/id", "a string", true},
		{"/action", "an object", false},
		{"/action/name", "a string", true},
		{"/items", "an array", false},
		{"/context", "an object", false},
		{"/denial", "an object", false},
		{"/denial/expires_at", "a string", true},
		{"/denial/evaluation_id", "a string", false},
		{"/denial/binding_token", "a string", false},
		{"/denial/evaluated_at", "a string", false},
		{"/denial/reason", "a string", false},
		{"/denial/template", "a string", false},
		{"/requested_access", "an object", false},
		{"/callback", "an object", false},
		{"/callback/endpoint", "a string", true},
		{"/callback/state", "a string", false},
		{"/callback/events", "an array of strings", false},
		{"/client", "an object", false},
	} {
		var want error
		if test.required {
			want = authzen.Invalid(test.path, "is required")
		}
		if test.path == "/denial/expires_at" {
			want = authzen.Invalid(test.path, "is required: copy it from context.access_request of the answer that denied")
		}
		check(t, unmarshal[authzen.Submission], without(t, submission, test.path), want)
		check(t, unmarshal[authzen.Submission], with(t, submission, test.path, "7"), authzen.Invalid(test.path, "must be %s, not a number", test.wanted))
	}
}

// AR-140: members that are not known are ignored wherever there may be some.
func TestSubmissionExtensions(t *testing.T) {
	var want authzen.Submission
	if err := authzen.Unmarshal([]byte(submission), &want); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "/subject", "/resource", "/action", "/denial", "/callback"} {
		for _, extension := range []string{`"com.example.risk":{"score":7}`, `"https://example.com/risk":null`, `"Denial":5`} {
			var got authzen.Submission
			body := within(t, submission, path, extension)
			if err := authzen.Unmarshal([]byte(body), &got); err != nil {
				t.Errorf("%s: %v", body, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", body, diff)
			}
		}
	}
}

// AR-139: what is answered has members of the profile, and others only by URI.
func TestAnswersIgnoreExtensions(t *testing.T) {
	for _, test := range []struct {
		value   any
		profile string
	}{
		{authzen.AccessRequest{}, "endpoint template expires_at binding_token display form_url request_schema_url request_catalogs_url"},
		{authzen.TaskResponse{}, "task result"},
		{authzen.Task{}, "id status status_endpoint expires_at progress display links items"},
		{authzen.TaskProgress{}, "current_step total_steps step_name awaiting"},
		{authzen.TaskLinks{}, "ticket review cancel"},
		{authzen.TaskItem{}, "resource action status result"},
		{authzen.TaskResult{}, "mode approval"},
		{authzen.Approval{}, "id approved_until approved_at state"},
		{authzen.Notification{}, "task state result"},
		{authzen.Problem{}, "type title status detail"},
	} {
		kind := reflect.TypeOf(test.value)
		for i := range kind.NumField() {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(" "+test.profile+" ", " "+name+" ") && !strings.HasPrefix(name, "urn:") {
				t.Errorf("%s has %q, which is not the profile's", kind, name)
			}
		}
	}
}
