package catalog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/catalog"
)

// Tools that a server no longer lists stay pinned, and after 30 days do not keep
// it from listing others.
func TestPlaces(t *testing.T) {
	clock := now
	c, err := catalog.Open(catalog.Config{Path: filepath.Join(t.TempDir(), "pins.db"), Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	list := func(prefix, description string, n int) error {
		var tools []jsontext.Value
		for i := range n {
			tools = append(tools, jsontext.Value(fmt.Sprintf(`{"name":"%s%d","description":%q}`, prefix, i, description)))
		}
		return c.Observe("crm", tools)
	}
	if err := list("old", "first", 2000); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(20 * 24 * time.Hour)
	if err := list("old", "first", 1); err != nil { // is seen again
		t.Fatal(err)
	}
	if err := list("new", "first", 1); !errors.Is(err, catalog.ErrUnreadable) {
		t.Errorf("2001 tools within 30 days: %v", err)
	}
	clock = clock.Add(11 * 24 * time.Hour)
	if err := list("new", "first", 1999); err != nil {
		t.Errorf("1999 tools beside one of the 2000 old ones: %v", err)
	}
	if err := list("more", "first", 1); !errors.Is(err, catalog.ErrUnreadable) {
		t.Errorf("2001 tools within 30 days: %v", err)
	}
	if err := list("old", "second", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tool("crm", "old1"); !errors.Is(err, catalog.ErrQuarantined) {
		t.Errorf("a tool that comes back changed: %v", err)
	}
}

// A tool that is forgotten is pinned anew. All of the names are forgotten or none.
func TestForget(t *testing.T) {
	c, _ := open(t, filepath.Join(t.TempDir(), "pins.db"), false)
	observe(t, c, `{"name":"a","description":"first"}`, `{"name":"b"}`)
	observe(t, c, `{"name":"a","description":"second","inputSchema":{"required":["x"]}}`, `{"name":"b"}`)
	pins, err := c.Pins("crm")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`- /description "first"`, `+ /description "second"`, `+ /inputSchema/required/0 "x"`}
	if got := pins[0].Diff(); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if err := c.Forget("crm", "a", "c"); !errors.Is(err, catalog.ErrUnknown) {
		t.Errorf("an unknown tool: %v", err)
	}
	if _, err := c.Tool("crm", "a"); !errors.Is(err, catalog.ErrQuarantined) {
		t.Errorf("none is forgotten: %v", err)
	}
	if err := c.Forget("crm", "a"); err != nil {
		t.Fatal(err)
	}
	observe(t, c, `{"name":"a","description":"second"}`)
	if _, err := c.Tool("crm", "a"); err != nil {
		t.Errorf("pinned anew: %v", err)
	}
}
