package main

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp"
)

// An approver sees what is asked for of each thing, beside what is of all.
func TestDescribeRequest(t *testing.T) {
	got := describeRequest(&pdp.AccessRequest{Request: approval.Request{
		Access: jsontext.Value(`{"ticket":"T-1"}`),
		Items:  []approval.Item{{}, {Access: jsontext.Value(`{"requested_until":"2026-05-01T00:15:00Z"}`)}},
	}})
	all, items, _ := strings.Cut(got, "item 0")
	first, second, _ := strings.Cut(items, "item 1")
	if !strings.Contains(all, "\nasks for   {\"ticket\":\"T-1\"}\n") || strings.Contains(first, "asks for") ||
		!strings.Contains(second, "\n  asks for {\"requested_until\":\"2026-05-01T00:15:00Z\"}\n") || strings.Contains(got, "tenant") {
		t.Errorf("described as\n%s", got)
	}
}
