package authzen_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/schemas/authzen"
)

func unmarshal[T any](body string) error {
	return authzen.Unmarshal([]byte(body), new(T))
}

// check compares what reading body ends with and want. The words of the JSON
// reader behind the place of a syntax error are not compared.
func check(t *testing.T, read func(string) error, body string, want error) {
	t.Helper()
	got := read(body)
	if invalid, ok := got.(*authzen.ValidationError); ok && strings.HasPrefix(invalid.Reason, "is not valid JSON at byte ") {
		place, _, _ := strings.Cut(invalid.Reason, ":")
		got = &authzen.ValidationError{Path: invalid.Path, Reason: place}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%.200s (-want +got):\n%s", body, diff)
	}
}

// with returns the body with the JSON text as the member at path.
func with(t testing.TB, body, path, text string) string {
	t.Helper()
	cut := strings.LastIndexByte(path, '/')
	return within(t, without(t, body, path), path[:cut], `"`+path[cut+1:]+`":`+text)
}

// without returns the body without the member at path.
func without(t testing.TB, body, path string) string {
	t.Helper()
	name, rest, deeper := strings.Cut(path[1:], "/")
	members := membersOf(t, body)
	if deeper {
		members[name] = jsontext.Value(without(t, string(members[name]), "/"+rest))
	} else {
		delete(members, name)
	}
	text, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// within returns the body with the text of members behind those of the object
// at path. The text need not be valid.
func within(t testing.TB, body, path, members string) string {
	t.Helper()
	if path == "" {
		open := strings.TrimSuffix(body, "}")
		if open != "{" {
			open += ","
		}
		return open + members + "}"
	}
	name, rest, deeper := strings.Cut(path[1:], "/")
	if deeper {
		rest = "/" + rest
	}
	object := string(membersOf(t, body)[name])
	return strings.Replace(body, object, within(t, object, rest, members), 1)
}

func membersOf(t testing.TB, object string) map[string]jsontext.Value {
	t.Helper()
	var members map[string]jsontext.Value
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return members
}
