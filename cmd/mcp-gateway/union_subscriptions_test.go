package main

import (
	"fmt"
	"strings"
	"testing"
)

// A session whose URIs are too long altogether gets an error that says what to do,
// and the server does not see the request. A subscription that the policies deny takes
// no place.
func TestUnionBoundsSubscriptions(t *testing.T) {
	a := &scripted{result: map[string]string{"resources/subscribe": "{}", "resources/unsubscribe": "{}"}}
	client := newRawClient(t, united(t, deniesAll(t, "secret"), "", newScripted(t, a)))
	ask := func(method, uri string) string {
		return client.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":"mcp-server://a/file:///%s"}}`, method, uri))
	}
	half := strings.Repeat("x", 64<<10)
	for _, step := range []struct{ method, uri, want string }{
		{"subscribe", "secret" + half, "access denied"},
		{"subscribe", "secret" + half + half, "unsubscribe from some"},
		{"subscribe", "one" + half, `"result"`},
		{"subscribe", "two" + half, "unsubscribe from some"},
		{"unsubscribe", "one" + half, `"result"`},
		{"subscribe", "two" + half, `"result"`},
	} {
		if got := ask(step.method, step.uri); !strings.Contains(got, step.want) {
			t.Errorf("%s %.10s…: %.300s", step.method, step.uri, got)
		}
	}
	if got := a.got.String(); strings.Count(got, "two") != 1 {
		t.Errorf("the server got a subscription that is over the limit")
	}
}
