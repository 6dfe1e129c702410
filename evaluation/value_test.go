package evaluation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// TestValues sends values as resource.v and asks a policy what it sees.
func TestValues(t *testing.T) {
	is := func(sent, condition string) [2]string { return [2]string{sent, condition} }
	tests := [][2]string{
		is(`true`, `resource.v == true`),
		is(`"text"`, `resource.v == "text"`),
		is(`"a\u0062\n"`, `resource.v == "ab\n"`),
		is(`""`, `resource.v == ""`),

		// Null is absence: AZ-85.
		is(`null`, `!(resource has v)`),
		is(`{"a":null,"b":1}`, `resource.v == {b: 1}`),

		// A number that is integral is a Long, however it is written: AZ-83.
		is(`0`, `resource.v == 0`),
		is(`-0`, `resource.v == 0`),
		is(`-0.0`, `resource.v == 0`),
		is(`0e999999999`, `resource.v == 0`),
		is(`1.0`, `resource.v == 1`),
		is(`1e3`, `resource.v == 1000`),
		is(`1E+3`, `resource.v == 1000`),
		is(`12.50e1`, `resource.v == 125`),
		is(`100e-2`, `resource.v == 1`),
		is(`0.001e3`, `resource.v == 1`),
		is(`9007199254740993`, `resource.v == 9007199254740993`),
		is(`9223372036854775807`, `resource.v == 9223372036854775807`),
		is(`-9223372036854775808`, `resource.v == -9223372036854775808`),
		is(`9.223372036854775807e18`, `resource.v == 9223372036854775807`),

		// One with up to four decimals is a decimal.
		is(`1.5`, `resource.v == decimal("1.5")`),
		is(`-1.5`, `resource.v == decimal("-1.5")`),
		is(`1.2345`, `resource.v == decimal("1.2345")`),
		is(`1.23450`, `resource.v == decimal("1.2345")`),
		is(`12345e-4`, `resource.v == decimal("1.2345")`),
		is(`-0.0001`, `resource.v == decimal("-0.0001")`),
		is(`922337203685477.5807`, `resource.v == decimal("922337203685477.5807")`),
		is(`-922337203685477.5808`, `resource.v == decimal("-922337203685477.5808")`),

		// Arrays are sets.
		is(`[]`, `resource.v.isEmpty()`),
		is(`[1,2,1]`, `resource.v == [2,1]`),
		is(`[[1],[],{"a":[2]}]`, `resource.v == [[1], [], {a: [2]}]`),
		is(`["a",1,true]`, `resource.v.containsAll(["a", 1, true])`),

		// Objects are records. What names an entity in Cedar's JSON is data here.
		is(`{"a":{"b c":1}}`, `resource.v.a["b c"] == 1`),
		is(`{"":1}`, `resource.v[""] == 1`),
		is(`{"type":"user","id":"alice"}`, `resource.v == {type: "user", id: "alice"} && !(resource.v == user::"alice")`),
		is(`{"fn":"ip","arg":"10.0.0.1"}`, `resource.v.fn == "ip"`),
		is(`{"entity__":1,"_entity":2,"__tag":3}`, `resource.v["_entity"] == 2 && resource.v["__tag"] == 3`),
		is(`"__entity"`, `resource.v == "__entity"`),
		is(`"2026-11-20"`, `resource.v == "2026-11-20"`),
	}
	for _, test := range tests {
		s := compile(t, `@id("v") permit (principal, action, resource) when { `+test[1]+` };`)
		s.allows("user alice", "read", fmt.Sprintf(`doc 1 {"v":%s}`, test[0]))
	}
}

// A value that a policy would see otherwise than it was sent is refused: AZ-82
// to AZ-84.
func TestValuesRefused(t *testing.T) {
	s := compile(t, `@id("v") permit (principal, action, resource);`)
	refuses := func(sent, complaint string) {
		t.Helper()
		s.refuses(complaint, "user alice", "read", `doc 1 {"a":0,"v":`+sent+`,"z":0}`)
	}
	const number = " must be a 64-bit integer or have at most four decimals: "

	refuses(`[1,null]`, "/resource/properties/v/1 must not be null")
	refuses(`[null]`, "/resource/properties/v/0 must not be null")
	refuses(`{"a":[{"b":[1,null]}]}`, "/resource/properties/v/a/0/b/1 must not be null")

	for _, sent := range []string{
		`9223372036854775808`, `-9223372036854775809`, `1e19`, `1e999999999`, `-1e999999999`,
		`1e99999999999999999999`, `1e9223372036854775807`, `9.2233720368547758075`,
		`1.23456`, `1e-5`, `0.00001`, `1e-999999999`, `1.5e-4`, `1e-9223372036854775808`,
	} {
		refuses(sent, "/resource/properties/v"+number+sent)
	}
	refuses(`[[0,{"b":1.23456}]]`, "/resource/properties/v/0/1/b"+number+"1.23456")
	refuses(`922337203685477.5808`, "/resource/properties/v"+number+"922337203685477.5808")

	// The names by which Cedar's JSON escapes from data.
	for _, name := range []string{
		"__entity", "__extn", "__expr", "__ENTITY", "__Extn", "__eXpR",
		`\u005f_entity`, `_\u005fextn`, `\u005F\u005Fexpr`, `__entit\u0079`, `__\u0045XTN`,
	} {
		plain := strings.NewReplacer(`\u005f`, "_", `\u005F`, "_", `\u0079`, "y", `\u0045`, "E").Replace(name)
		refuses(`{"`+name+`":{"type":"user","id":"mallory"}}`, "/resource/properties/v/"+plain+" is a reserved name")
		refuses(`[1,[{"a":{"`+name+`":null}}]]`, "/resource/properties/v/1/0/a/"+plain+" is a reserved name")
	}
	s.refuses("/resource/properties/__entity is a reserved name",
		"user alice", "read", `doc 1 {"__entity":{"type":"user","id":"mallory"}}`)

	// Names are escaped as a JSON Pointer has them.
	refuses(`{"a/b":{"c~d":[null]}}`, "/resource/properties/v/a~1b/c~0d/0 must not be null")
}

// Every part of a request is read in the same way.
func TestValuesEverywhere(t *testing.T) {
	s := compile(t, `@id("v") permit (principal, action, resource)
		when { principal.a == 1 && context.action.b == 2 && resource.c == 3 && context.d == 4 };`)
	s.allows(`user alice {"a":1.0}`, `read {"b":2}`, `doc 1 {"c":3,"x":null}`, `{"d":4e0}`)

	s.refuses("/subject/properties/a/0 must not be null", `user alice {"a":[null]}`, `read`, `doc 1`)
	s.refuses("/action/properties/b/c/__extn is a reserved name", `user alice`, `read {"b":{"c":{"__extn":1}}}`, `doc 1`)
	s.refuses("/resource/properties/c/1 must not be null", `user alice`, `read`, `doc 1 {"c":[{"b":[]},null]}`)
	s.refuses("/context/d/__expr is a reserved name", `user alice`, `read`, `doc 1`, `{"d":{"__expr":""}}`)
}

// Limits bound what a set costs and how long a string a pattern meets: AZ-91.
func TestLimits(t *testing.T) {
	array := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	text := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	const policy = `@id("v") permit (principal, action, resource) when { resource has v };`

	standard := compile(t, policy)
	small := compile(t, policy+"\n-- config.yaml --\nlimits: {array_elements: 3, nested_array_elements: 2, string_bytes: 4}\n")

	takes := func(s compiledStore, sent string) {
		t.Helper()
		s.allows("user alice", "read", `doc 1 {"v":`+sent+`}`)
	}
	refuses := func(s compiledStore, sent, complaint string) {
		t.Helper()
		s.refuses("/resource/properties/v"+complaint, "user alice", "read", `doc 1 {"v":`+sent+`}`)
	}

	takes(standard, array("1", 1024))
	refuses(standard, array("1", 1025), " has more than 1024 elements")
	takes(standard, array("[]", 64))
	takes(standard, array("{}", 64))
	refuses(standard, array("[1]", 65), " has more than 64 elements")
	refuses(standard, array(`{"a":1}`, 65), " has more than 64 elements")
	refuses(standard, `[1,`+array("1", 1025)+`]`, "/1 has more than 1024 elements")
	refuses(standard, "[[]"+strings.Repeat(",1", 64)+"]", " has more than 64 elements")
	refuses(standard, "["+strings.Repeat("1,", 64)+"[]]", " has more than 64 elements")
	takes(standard, text(8192))
	refuses(standard, text(8193), " is longer than 8192 bytes")

	takes(small, `[1,2,3]`)
	refuses(small, `[1,2,3,4]`, " has more than 3 elements")
	takes(small, `[[1,2,3],[1]]`)
	refuses(small, `[[1],[2],[3]]`, " has more than 2 elements")
	refuses(small, `{"a":[[1,2,3,4]]}`, "/a/0 has more than 3 elements")
	takes(small, text(4))
	takes(small, `"ää"`)
	refuses(small, `"äää"`, " is longer than 4 bytes")
	refuses(small, `["x","äää"]`, "/1 is longer than 4 bytes")
}

// Sets whose elements all have the same hash cost no more than the limits let
// them: AZ-91.
func TestCollidingSets(t *testing.T) {
	s := compile(t, `@id("v") permit (principal, action, resource) when { resource has v };`)
	var pairs, members []string
	for i := range 64 {
		pairs = append(pairs, fmt.Sprintf(`[%d,%d]`, i, 64-i))
	}
	for i := range 32 {
		members = append(members, fmt.Sprintf(`"a%d":[%s]`, i, strings.Join(pairs, ",")))
	}
	req := request(t, question("user alice", "read", `doc 1 {"v":{`+strings.Join(members, ",")+`}}`))

	done := make(chan error, 1)
	go func() {
		_, err := s.Decide(req, environment)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still deciding")
	}
}

// A request that was not read by package authzen is refused and not trusted.
func TestValuesThatAreNotJSON(t *testing.T) {
	s := compile(t, `@id("v") permit (principal, action, resource);`)
	for _, raw := range []string{
		"", " ", "1", `"a"`, "null", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":[1`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`, `{"a":tru}`, `{"a":01}`,
	} {
		sent := []byte(raw)
		for path, send := range map[string]func(*authzen.EvaluationRequest){
			"/subject/properties":  func(r *authzen.EvaluationRequest) { r.Subject.Properties = sent },
			"/action/properties":   func(r *authzen.EvaluationRequest) { r.Action.Properties = sent },
			"/resource/properties": func(r *authzen.EvaluationRequest) { r.Resource.Properties = sent },
			"/context":             func(r *authzen.EvaluationRequest) { r.Context = sent },
		} {
			req := request(t, question("user alice", "read", "doc 1"))
			send(req)
			_, err := s.Decide(req, environment)
			var invalid *authzen.ValidationError
			if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Path, path) {
				t.Errorf("%s: %.40q is answered with the error %v", path, raw, err)
			}
		}
	}
}
