package evaluation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// library lets everybody read every book but the last.
const library = `
@id("read") permit (principal, action == Action::"read", resource) unless { resource.closed };
-- entities.json --
[{"uid":{"type":"book","id":"e"},"attrs":{"closed":true},"parents":[]},
 {"uid":{"type":"book","id":"c"},"attrs":{"closed":false},"parents":[]},
 {"uid":{"type":"book","id":"a"},"attrs":{"closed":false},"parents":[]},
 {"uid":{"type":"book","id":"d"},"attrs":{"closed":false},"parents":[]},
 {"uid":{"type":"book","id":"b"},"attrs":{"closed":false},"parents":[]}]
`

// books asks what may be read.
func books(page *authzen.PageRequest) *authzen.ResourceSearchRequest {
	return &authzen.ResourceSearchRequest{
		Subject:  authzen.Subject{Type: "user", ID: "alice"},
		Action:   authzen.Action{Name: "read"},
		Resource: authzen.Searched{Type: "book"},
		Context:  jsontext.Value(`{"a":1,"b":2}`),
		Page:     page,
	}
}

func limit(n int) *int { return &n }

// tell is what a search answers, on a line; a token is told as "more".
func tell(out *authzen.EntitySearchResponse) string {
	var line strings.Builder
	for _, r := range out.Results {
		line.WriteString(r.ID)
	}
	if page := out.Page; page != nil {
		fmt.Fprintf(&line, " count %d", page.Count)
		if page.Total != nil {
			fmt.Fprintf(&line, " total %d", *page.Total)
		}
		if page.NextToken != "" {
			line.WriteString(" more")
		}
	}
	return line.String()
}

// AZ-62, AZ-63, AZ-64, AZ-69, D-6, D-13, D-14.
func TestSearchPages(t *testing.T) {
	tests := []struct {
		name   string
		config evaluation.Config
		page   *authzen.PageRequest
		want   []string
	}{
		{"whole", evaluation.Config{}, nil, []string{"abcd"}},
		{"no limit in a page", evaluation.Config{}, &authzen.PageRequest{}, []string{"abcd"}},
		{"as many as there are", evaluation.Config{}, &authzen.PageRequest{Limit: limit(4)}, []string{"abcd count 4 total 4"}},
		{"more than there are", evaluation.Config{}, &authzen.PageRequest{Limit: limit(9)}, []string{"abcd count 4 total 4"}},
		{"pages of one", evaluation.Config{}, &authzen.PageRequest{Limit: limit(1)}, []string{"a count 1 more", "b count 1 more", "c count 1 more", "d count 1"}},
		{"pages of three", evaluation.Config{}, &authzen.PageRequest{Limit: limit(3)}, []string{"abc count 3 more", "d count 1"}},
		{"a limit of nothing", evaluation.Config{}, &authzen.PageRequest{Limit: limit(0)}, []string{" count 0 more", " count 0 more", " count 0 more"}},
		{"more than one answer may have", evaluation.Config{MaxResults: 3}, nil, []string{"abc count 3 more", "d count 1"}},
		{"a limit beyond what one answer may have", evaluation.Config{MaxResults: 3}, &authzen.PageRequest{Limit: limit(4)}, []string{"abc count 3 more", "d count 1"}},
		{"as many as one answer may have", evaluation.Config{MaxResults: 4}, nil, []string{"abcd"}},
		{"more to look at than one answer may", evaluation.Config{MaxCandidates: 3}, nil, []string{"abc count 3 more", "d count 1"}},
		{"a page of nothing because of that", evaluation.Config{MaxCandidates: 1}, &authzen.PageRequest{Limit: limit(4)},
			[]string{"a count 1 more", "b count 1 more", "c count 1 more", "d count 1 more", " count 0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, _ := engine(t, library, test.config)
			page := test.page
			for i, want := range test.want {
				out, err := e.SearchResources(t.Context(), evaluation.Call{}, books(page))
				if err != nil {
					t.Fatal(err)
				}
				if got := tell(out); got != want {
					t.Errorf("page %d: %q, want %q", i+1, got, want)
				}
				if out.Page != nil {
					page = &authzen.PageRequest{Token: out.Page.NextToken}
				}
			}
		})
	}
}

// AZ-65: a token leads on in the search that it was given in, and nowhere else.
func TestSearchToken(t *testing.T) {
	config := evaluation.Config{PageKey: []byte("shared")}
	e, _ := engine(t, library, config)
	first, err := e.SearchResources(t.Context(), evaluation.Call{}, books(&authzen.PageRequest{Limit: limit(2)}))
	if err != nil {
		t.Fatal(err)
	}
	token := first.Page.NextToken
	ask := func(e *evaluation.Engine, change func(*authzen.ResourceSearchRequest)) string {
		r := books(&authzen.PageRequest{Token: token})
		change(r)
		out, err := e.SearchResources(t.Context(), evaluation.Call{}, r)
		var invalid *authzen.ValidationError
		if errors.As(err, &invalid) {
			return invalid.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		return tell(out)
	}
	replica, _ := engine(t, library, config)
	stranger, _ := engine(t, library, evaluation.Config{})
	edited, _ := engine(t, library, config)
	load(t, edited, library+"-- extra.cedar --\n@id(\"x\") forbid (principal == user::\"x\", action, resource);\n")

	const (
		another = "/page/token belongs to another search: repeat the request that it answered, unchanged"
		foreign = "/page/token is not one that this service gave: begin again without it"
	)
	tests := []struct {
		name   string
		engine *evaluation.Engine
		change func(*authzen.ResourceSearchRequest)
		want   string
	}{
		{"the token alone", e, func(*authzen.ResourceSearchRequest) {}, "cd count 2"},
		{"the limit as it was", e, func(r *authzen.ResourceSearchRequest) { r.Page.Limit = limit(2) }, "cd count 2"},
		{"members in another order", e, func(r *authzen.ResourceSearchRequest) { r.Context = jsontext.Value(` {"b": 2, "a":1}`) }, "cd count 2"},
		{"a replica", replica, func(*authzen.ResourceSearchRequest) {}, "cd count 2"},
		{"another limit", e, func(r *authzen.ResourceSearchRequest) { r.Page.Limit = limit(3) }, "/page/limit must be that of the page before, or absent"},
		{"another subject", e, func(r *authzen.ResourceSearchRequest) { r.Subject.ID = "bob" }, another},
		{"properties of the subject", e, func(r *authzen.ResourceSearchRequest) { r.Subject.Properties = jsontext.Value(`{}`) }, another},
		{"another action", e, func(r *authzen.ResourceSearchRequest) { r.Action.Name = "write" }, another},
		{"another type", e, func(r *authzen.ResourceSearchRequest) { r.Resource.Type = "user" }, another},
		{"another context", e, func(r *authzen.ResourceSearchRequest) { r.Context = jsontext.Value(`{"a":1,"b":3}`) }, another},
		{"no context", e, func(r *authzen.ResourceSearchRequest) { r.Context = nil }, another},
		{"other page properties", e, func(r *authzen.ResourceSearchRequest) { r.Page.Properties = jsontext.Value(`{"sort":"id"}`) }, another},
		{"another service", stranger, func(*authzen.ResourceSearchRequest) {}, foreign},
		{"a changed token", e, func(r *authzen.ResourceSearchRequest) {
			r.Page.Token = strings.ToUpper(r.Page.Token[:1]) + strings.ToLower(r.Page.Token[:1]) + r.Page.Token[2:]
		}, foreign},
		{"half a token", e, func(r *authzen.ResourceSearchRequest) { r.Page.Token = r.Page.Token[:20] }, foreign},
		{"no token", e, func(r *authzen.ResourceSearchRequest) { r.Page.Token = "x y" }, foreign},
		{"other policies", edited, func(*authzen.ResourceSearchRequest) {}, "/page/token is older than the policies: begin again without it"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := ask(test.engine, test.change); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// Every tenant's searches are its own, even where its policies are another's.
func TestSearchTokenOfAnotherTenant(t *testing.T) {
	store := "-- tenants/a/books.cedar --" + strings.Replace(library, "-- entities.json --", "-- tenants/a/entities.json --", 1) +
		"-- tenants/b/own.cedar --\n@id(\"own\") permit (principal, action, resource);\n"
	e, _ := engine(t, store, evaluation.Config{})
	ask := func(tenant string, page *authzen.PageRequest) (*authzen.EntitySearchResponse, error) {
		return e.SearchResources(t.Context(), evaluation.Call{Tenant: tenant}, books(page))
	}
	first, err := ask("a", &authzen.PageRequest{Limit: limit(1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask("a", &authzen.PageRequest{Token: first.Page.NextToken}); err != nil {
		t.Error(err)
	}
	_, err = ask("b", &authzen.PageRequest{Token: first.Page.NextToken})
	if err == nil || !strings.Contains(err.Error(), "belongs to another search") {
		t.Errorf("another tenant: %v", err)
	}
}

// A search is one entry of the log.
func TestSearchIsRecorded(t *testing.T) {
	e, log := engine(t, library, evaluation.Config{})
	call := evaluation.Call{ID: "search-1", RequestID: "r-1"}
	if _, err := e.SearchResources(t.Context(), call, books(&authzen.PageRequest{Limit: limit(3)})); err != nil {
		t.Fatal(err)
	}
	want := `{"index":1,"id":"search-1","time":"` + now.Format(time.RFC3339) + `","kind":"search","request":{"subject":{"type":"user","id":"alice"},` +
		`"action":{"name":"read"},"resource":{"type":"book"},"context":{"a":1,"b":2},"page":{"limit":3}},` +
		`"search":{"for":"resource","results":3,"more":true},"revision":"` + inForce(t, e) + `","request_id":"r-1","latency_us":1500}` + "\n"
	lines := bytes.SplitAfter(bytes.TrimSuffix(export(t, log), nil), []byte("\n"))
	if diff := cmp.Diff(want, string(lines[len(lines)-2])); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
}

// Who leaves is not searched for, and what cannot be recorded is not answered.
func TestSearchFails(t *testing.T) {
	e, log := engine(t, library, evaluation.Config{})
	gone, leave := context.WithCancel(t.Context())
	leave()
	if out, err := e.SearchResources(gone, evaluation.Call{}, books(nil)); out != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("who has left is answered %v, %v", out, err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := e.SearchResources(t.Context(), evaluation.Call{}, books(nil)); out != nil || err == nil {
		t.Errorf("without a log: %v, %v", out, err)
	}
	none := evaluation.NewEngine(openLog(t, t.TempDir(), decisionlog.Config{}), evaluation.Config{})
	if _, err := none.SearchActions(t.Context(), evaluation.Call{}, &authzen.ActionSearchRequest{}); !errors.Is(err, snapshot.ErrNoSnapshot) {
		t.Errorf("without policies: %v", err)
	}
}

func TestSearchFinds(t *testing.T) {
	const entities = `
-- entities.json --
[{"uid":{"type":"user","id":"alice"},"attrs":{"level":2},"parents":[{"type":"team","id":"a"}]},
 {"uid":{"type":"user","id":"bob"},"attrs":{"level":1},"parents":[]},
 {"uid":{"type":"team","id":"a"},"attrs":{},"parents":[]},
 {"uid":{"type":"doc","id":"1"},"attrs":{"owner":{"__entity":{"type":"user","id":"bob"}}},"parents":[]},
 {"uid":{"type":"doc","id":"2"},"attrs":{},"parents":[]}]
`
	const schema = `
-- schema.cedarschema --
entity color enum ["red", "green"];
entity user in [team] { level: Long };
entity team;
entity doc { owner?: user };
action paint appliesTo { principal: [user], resource: [color] };
action read, write appliesTo { principal: [user], resource: [doc], context: { purpose?: String } };
action all;
` + entities
	tests := []struct {
		name, policies, search, body, want string
	}{
		{"an enumeration is found without being stored", `@id("p") permit (principal, action == Action::"paint", resource);` + schema,
			"resource", `{"subject":{"type":"user","id":"alice"},"action":{"name":"paint"},"resource":{"type":"color"}}`, "green red"},
		{"nothing is found for what the enumeration does not have", `@id("p") permit (principal, action == Action::"paint", resource);` + schema,
			"subject", `{"subject":{"type":"user"},"action":{"name":"paint"},"resource":{"type":"color","id":"blue"}}`, ""},
		{"actions are the schema's", `@id("p") permit (principal, action, resource is doc);` + schema,
			"action", `{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"1"}}`, "read write"},
		{"a context that only some actions have", `@id("p") permit (principal, action, resource);` + schema,
			"action", `{"subject":{"type":"user","id":"alice"},"resource":{"type":"color","id":"red"},"context":{"purpose":"x"}}`, "400 /context/purpose is not declared by the schema"},
		{"a subject of the wrong type", `@id("p") permit (principal, action, resource);` + schema,
			"resource", `{"subject":{"type":"team","id":"a"},"action":{"name":"read"},"resource":{"type":"doc"}}`, ""},
		{"an action that nobody knows", `@id("p") permit (principal, action, resource);` + schema,
			"resource", `{"subject":{"type":"user","id":"alice"},"action":{"name":"reed"},"resource":{"type":"doc"}}`, ""},
		{"properties of the wrong type", `@id("p") permit (principal, action, resource);` + schema,
			"resource", `{"subject":{"type":"user","id":"alice","properties":{"level":"high"}},"action":{"name":"read"},"resource":{"type":"doc"}}`,
			"400 /subject/properties/level must be an integer"},
		{"a group that nobody needs", `@id("p") permit (principal, action, resource) unless { principal is team in [resource.owner] };` + entities,
			"subject", `{"subject":{"type":"user"},"action":{"name":"read"},"resource":{"type":"doc","id":"2"}}`, "alice bob"},
		// OB-23: an obligation is that of its result.
		{"an obligation that was not declared", `@id("p") @obligation_notification("{\"to\":\"a\",\"body\":\"b\"}") permit (principal, action == Action::"read", resource is doc);` + schema,
			"resource", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc"}}`, ""},
		{"an obligation that was", `@id("p") @obligation_notification("{\"to\":\"a\",\"body\":\"b\"}") permit (principal, action == Action::"read", resource is doc);` + schema,
			"resource", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc"},"context":{"supported_obligations":["notification"]}}`,
			"1[0.obligation-1] 2[1.obligation-1]"},
		{"an obligation that speaks of the result", `@id("p") @obligation_notification("{\"to\":\"{{resource.id}}\",\"body\":\"{{subject.id}}\"}") permit (principal, action == Action::"read", resource is doc);` + schema,
			"resource", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc"},"context":{"supported_obligations":["notification"]}}`,
			`1[0.obligation-1]{"body":"alice","decision_subject":"alice","to":["1"]} 2[1.obligation-1]{"body":"alice","decision_subject":"alice","to":["2"]}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, _ := engine(t, "\n"+test.policies, evaluation.Config{})
			if got := find(t, e, test.search, test.body); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// find searches and tells what it finds, each with the ids of its obligations.
func find(t *testing.T, e *evaluation.Engine, what, body string) string {
	t.Helper()
	var found []string
	add := func(name string, all []authzen.Obligation) {
		for _, o := range all {
			name += "[" + o.ID + "]"
			if !bytes.Contains(o.Properties, []byte(`"to":["a"]`)) {
				name += string(o.Properties)
			}
		}
		found = append(found, name)
	}
	var err error
	switch what {
	case "action":
		var r authzen.ActionSearchRequest
		var out *authzen.ActionSearchResponse
		read(t, body, &r)
		if out, err = e.SearchActions(t.Context(), evaluation.Call{}, &r); err == nil {
			for _, a := range out.Results {
				add(a.Name, a.Obligations)
			}
		}
	case "subject":
		var r authzen.SubjectSearchRequest
		var out *authzen.EntitySearchResponse
		read(t, body, &r)
		if out, err = e.SearchSubjects(t.Context(), evaluation.Call{}, &r); err == nil {
			for _, f := range out.Results {
				add(f.ID, f.Obligations)
			}
		}
	case "resource":
		var r authzen.ResourceSearchRequest
		var out *authzen.EntitySearchResponse
		read(t, body, &r)
		if out, err = e.SearchResources(t.Context(), evaluation.Call{}, &r); err == nil {
			for _, f := range out.Results {
				add(f.ID, f.Obligations)
			}
		}
	}
	if err != nil {
		return "400 " + err.Error()
	}
	return strings.Join(found, " ")
}

func read(t *testing.T, body string, into any) {
	t.Helper()
	if err := authzen.Unmarshal([]byte(body), into); err != nil {
		t.Fatal(err)
	}
}
