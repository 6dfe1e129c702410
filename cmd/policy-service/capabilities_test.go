package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A list of capabilities is followed from page to page to its end, with all that it selects.
func TestCapabilityListFollowsPages(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if r.URL.Query().Get("token") == "" {
			_, _ = io.WriteString(w, `{"capabilities":[{"id":"cap_1"},{"id":"cap_2"}],"page":{"next_token":"n+1"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"capabilities":[{"id":"cap_3"}]}`)
	}))
	defer server.Close()
	c := capabilitiesListCmd{capabilitiesFlags: capabilitiesFlags{adminFlags{Admin: server.URL}}, Status: "active", Server: "files", Tenant: "acme"}
	c.Holder = entityID{Type: "A::agent", ID: "a:1"}
	list, err := c.list(t.Context(), c.query())
	if err != nil || len(list) != 3 || list[2].ID != "cap_3" {
		t.Errorf("%+v, %v", list, err)
	}
	first := url.Values{"status": {"active"}, "holder": {"A::agent:a:1"}, "server": {"files"}, "tenant": {"acme"}}.Encode()
	if want := []string{first, first + "&token=n%2B1"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// Operators are warned of letters that look like others.
func TestDescribeCapabilityLookAlikes(t *testing.T) {
	for tool, warned := range map[string]bool{"shop:\u0440ay": true, "shop:pay": false} {
		got := describeCapability(&authzen.Capability{ID: "cap_1", Tools: []string{tool}})
		if strings.Contains(got, "\nwarning ") != warned {
			t.Errorf("described as\n%s", got)
		}
	}
}
