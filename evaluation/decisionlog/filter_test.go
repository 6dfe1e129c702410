package decisionlog_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// various are entries of every kind, in a log that keeps what they name.
func various(t testing.TB, l *decisionlog.Log) []*decisionlog.Entry {
	t.Helper()
	revision, err := l.KeepArchive(map[string][]byte{"a.cedar": []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	ask := func(subject string) jsontext.Value {
		return jsontext.Value(`{"subject":{"type":"user","id":"` + subject + `"},"action":{"name":"read"},"resource":{"type":"doc","id":"=1"}}`)
	}
	return []*decisionlog.Entry{
		{ID: "a", Time: at, Kind: decisionlog.KindReload, Request: jsontext.Value(`{"cause":"start"}`), Result: &decisionlog.Result{Decision: true}, Revision: revision},
		{ID: "b", Time: at.Add(time.Hour), Kind: decisionlog.KindEvaluation, Tenant: "acme", Request: ask("alice"), Caller: "gateway", RequestID: "r-1", TraceID: "4bf92f35", LatencyMicros: 42,
			Result: &decisionlog.Result{Decision: true, Policies: []string{"owner", "public"}, Obligations: []authzen.Obligation{{ID: "1", Type: "notification"}}}, Revision: revision},
		{ID: "c", Time: at.Add(2 * time.Hour), Kind: decisionlog.KindEvaluation, Tenant: "umbrella", Request: ask("bob"),
			Result: &decisionlog.Result{Policies: []string{"guard"}, Errors: []decisionlog.PolicyError{{Policy: "p", Message: "no x"}, {Message: "evaluation_error"}},
				Shadow: &decisionlog.Shadow{Revision: revision, Result: decisionlog.Result{Decision: true, Policies: []string{"=wide"}, Errors: []decisionlog.PolicyError{{Policy: "q", Message: "no y"}}}}}},
		{ID: "d", Time: at.Add(3 * time.Hour), Kind: decisionlog.KindEvaluations, Tenant: "acme",
			Request:     jsontext.Value(`{"subject":{"type":"user","id":"carol"},"action":{"name":"write"},"evaluations":[{"resource":{"type":"doc","id":"1"}},{"subject":{"type":"agent","id":"7"},"resource":{"type":"doc","id":"2"}},{}]}`),
			Evaluations: []decisionlog.Result{{Decision: true, Policies: []string{"owner"}}, {Policies: []string{"guard"}, Shadow: &decisionlog.Shadow{Revision: revision}}}},
		{ID: "e", Time: at.Add(4 * time.Hour), Kind: decisionlog.KindApproval, Tenant: "acme", Request: ask("alice"), Result: &decisionlog.Result{Decision: true}},
		{ID: "f", Time: at.Add(5 * time.Hour), Kind: decisionlog.KindAdmin, Request: jsontext.Value(`"x"`)},
	}
}

// lifted are the entries of a denial that a person lifted: what package approval
// records, and the evaluation that used the approval.
func lifted() (all []*decisionlog.Entry) {
	at := time.Date(2026, 11, 21, 9, 0, 0, 123456789, time.UTC)
	item := func(id, approval string) string {
		text := `{"evaluation_id":"eval-` + id + `","template":"sre","status":"approved","resource":{"type":"doc","id":"` + id + `"},"action":{"name":"deploy"}`
		if approval != "" {
			text += `,"approval":"` + approval + `","approved_until":"2026-11-21T10:00:00.5Z"`
		}
		return text + "}"
	}
	change := func(kind decisionlog.Kind, event, status, more, items string) {
		at = at.Add(time.Millisecond)
		all = append(all, &decisionlog.Entry{
			ID: fmt.Sprint(kind, "-", len(all)), Time: at, Tenant: "acme", Kind: kind, Caller: "gateway",
			Request: jsontext.Value(`{"event":"` + event + `","task":"arq_1","status":"` + status + `","template":"sre"` + more + `,"items":[` + items + `],"subject":{"type":"user","id":"alice"}}`),
		})
	}
	const carol = `,"approver":{"type":"user","id":"carol"},"channel":"api"`
	change(decisionlog.KindRequest, "submit", "pending", "", item("1", "")+","+item("2", ""))
	change(decisionlog.KindApproval, "approve", "pending", carol+`,"comment":"=one of two"`, item("1", "")+","+item("2", ""))
	change(decisionlog.KindApproval, "approve", "approved", `,"approver":{"type":"user","id":"dave"},"channel":"api"`, item("1", "apr_1")+","+item("2", "apr_2"))
	change(decisionlog.KindApproval, "use", "approved", `,"used_by":"eval-9"`, item("1", "apr_1"))
	change(decisionlog.KindApproval, "revoke", "approved", carol+`,"reason":"a mistake"`, item("1", "apr_1"))
	change(decisionlog.KindApproval, "deny", "denied", carol, item("2", ""))
	change(decisionlog.KindRequest, "expire", "expired", "", "")
	return append(all, &decisionlog.Entry{
		ID: "eval-9", Time: at, Tenant: "acme", Kind: decisionlog.KindEvaluation,
		Request: jsontext.Value(`{"subject":{"type":"user","id":"alice"},"action":{"name":"deploy"},"resource":{"type":"doc","id":"1"}}`),
		Result: &decisionlog.Result{Decision: true, Policies: []string{"deploy"}, Approval: &authzen.VerifiedApproval{
			ID: "apr_1", Task: "arq_1", Template: "sre", Channel: "api", Until: at.Add(time.Hour),
			Approvers: []authzen.Subject{{Type: "user", ID: "carol"}, {Type: "user", ID: "dave"}},
		}},
	})
}

// calls are entries of the audit trail of a gateway.
func calls() (all []*decisionlog.Entry) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	const who = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tools/call"},"resource":{"type":"tool","id":"crm:pay"},"server":"crm","tool":"pay","event":`
	for i, c := range []struct {
		kind    decisionlog.Kind
		request string
	}{
		{decisionlog.KindGatewayPending, `{"calls":[]}`},
		{decisionlog.KindGatewayCall, who + `"forwarded","decisions":["eval-9"],"task":"arq_1","approval":"apr_1"}`},
		{decisionlog.KindGatewayOutcome, who + `"succeeded","call":"call-1","task":"arq_1","approval":"apr_1"}`},
		{decisionlog.KindGatewayOutcome, who + `"failed","call":"call-2"}`},
		{decisionlog.KindGatewayOutcome, who + `"unknown","call":"call-3","reason":"restart"}`},
		{decisionlog.KindGatewayRefused, who + `"refused","reason":"denied"}`},
	} {
		all = append(all, &decisionlog.Entry{ID: fmt.Sprint("call-", i), Time: at, Tenant: "acme", Kind: c.kind, Request: jsontext.Value(c.request), RequestID: "r-1"})
	}
	return all
}

func TestFilter(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	mustAppend(t, l, various(t, l)...)
	at := various(t, l)[0].Time
	allow, deny := true, false
	for _, tt := range []struct {
		name   string
		filter decisionlog.Filter
		want   string // ids
	}{
		{"all", decisionlog.Filter{}, "abcdef"},
		{"from", decisionlog.Filter{From: 4}, "ef"},
		{"until", decisionlog.Filter{Until: 2}, "ab"},
		{"beyond", decisionlog.Filter{From: 3, Until: 100}, "def"},
		{"since", decisionlog.Filter{Since: at.Add(2 * time.Hour)}, "cdef"},
		{"before", decisionlog.Filter{Before: at.Add(2 * time.Hour)}, "ab"},
		{"tenant", decisionlog.Filter{Tenant: "acme"}, "bde"},
		{"subject", decisionlog.Filter{Subject: "alice"}, "be"},
		{"subject with its type", decisionlog.Filter{Subject: "user::carol"}, "d"},
		{"subject as flags have it", decisionlog.Filter{Subject: "user:carol"}, "d"},
		{"subject as Cedar has it", decisionlog.Filter{Subject: `user::"carol"`}, "d"},
		{"subject with a type that begins alike", decisionlog.Filter{Subject: "use:carol"}, ""},
		{"subject of an item", decisionlog.Filter{Subject: "agent::7"}, "d"},
		{"subject of another type", decisionlog.Filter{Subject: "agent::carol"}, ""},
		{"allowed", decisionlog.Filter{Decision: &allow}, "abde"},
		{"denied", decisionlog.Filter{Decision: &deny}, "cd"},
		{"policy", decisionlog.Filter{Policy: "owner"}, "bd"},
		{"policy that denied", decisionlog.Filter{Policy: "guard", Decision: &deny}, "cd"},
		{"policy that did not", decisionlog.Filter{Policy: "owner", Decision: &deny}, ""},
		{"id", decisionlog.Filter{ID: "c"}, "c"},
		{"id of an item", decisionlog.Filter{ID: "d.1"}, "d"},
		{"kind", decisionlog.Filter{Kind: decisionlog.KindEvaluation}, "bc"},
		{"several", decisionlog.Filter{Tenant: "acme", Subject: "alice", Kind: decisionlog.KindEvaluation}, "b"},
		{"resource", decisionlog.Filter{Resource: "doc::2"}, "d"},
		{"resource by its id", decisionlog.Filter{Resource: "=1"}, "bce"},
		{"resource of another type", decisionlog.Filter{Resource: "file:2"}, ""},
		{"action", decisionlog.Filter{Action: "read"}, "bce"},
		{"action that a batch has for its items", decisionlog.Filter{Action: "write", Resource: "doc:2"}, "d"},
		{"action and resource of different items", decisionlog.Filter{Action: "read", Resource: "doc:2"}, ""},
		{"request id", decisionlog.Filter{RequestID: "r-1"}, "b"},
		{"request id that is elsewhere in the line", decisionlog.Filter{RequestID: "alice"}, ""},
		{"trace id", decisionlog.Filter{TraceID: "4bf92f35"}, "b"},
		{"shadow", decisionlog.Filter{Shadow: decisionlog.ShadowDiffers}, "c"},
		{"errors", decisionlog.Filter{Errors: true}, "c"},
		{"errors of an allowed result", decisionlog.Filter{Errors: true, Decision: &allow}, ""},
		{"tenants", decisionlog.Filter{Tenants: []string{"umbrella", "initech"}}, "c"},
		{"a tenant that is not one of the tenants", decisionlog.Filter{Tenant: "acme", Tenants: []string{"umbrella"}}, ""},
	} {
		var got string
		for line, err := range l.Select(t.Context(), tt.filter) {
			if err != nil {
				t.Fatal(err)
			}
			var r decisionlog.Record
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			got += r.Entry.ID
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A filter of any one field selects less than all.
func TestFilterSelectsAll(t *testing.T) {
	if !(decisionlog.Filter{From: 1, Until: 2}).SelectsAll() {
		t.Error("indexes alone select less than all between them")
	}
	for field := range reflect.TypeFor[decisionlog.Filter]().Fields() {
		var f decisionlog.Filter
		v := reflect.ValueOf(&f).Elem().FieldByIndex(field.Index)
		switch v.Interface().(type) {
		case int64:
			continue
		case string, decisionlog.Kind:
			v.SetString("x")
		case time.Time:
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		case bool:
			v.SetBool(true)
		case *bool:
			v.Set(reflect.ValueOf(new(bool)))
		case []string:
			v.Set(reflect.ValueOf([]string{}))
		case []int64:
			v.Set(reflect.ValueOf([]int64{}))
		default:
			t.Fatalf("set %s, too", field.Name)
		}
		if f.SelectsAll() {
			t.Errorf("%s is not looked at", field.Name)
		}
	}
}

func TestLast(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	fill(t, l, 0, 2600)
	wait(t, func() bool { return l.Head().Size == 2600 })
	allow := true
	for _, tt := range []struct {
		name        string
		filter      decisionlog.Filter
		n, want, of int
		first, last int64
	}{
		{"a few", decisionlog.Filter{}, 3, 3, 2600, 2597, 2599},
		{"none", decisionlog.Filter{}, 0, 0, 0, 0, 0},
		{"more than a window", decisionlog.Filter{}, 1500, 1500, 2600, 1100, 2599},
		{"more than there are", decisionlog.Filter{}, 5000, 2600, 2600, 0, 2599},
		{"selected", decisionlog.Filter{Decision: &allow}, 600, 600, 1300, 1400, 2598},
		{"in a range", decisionlog.Filter{From: 10, Until: 20}, 5, 5, 10, 15, 19},
		{"in a short range", decisionlog.Filter{From: 10, Until: 20}, 50, 10, 10, 10, 19},
		{"of one id", decisionlog.Filter{ID: "entry-7"}, 10, 1, 1, 7, 7},
	} {
		last, err := l.Last(t.Context(), tt.filter, tt.n, math.MaxInt)
		got := selected(t, l.Reader, last.Filter)
		if err != nil || len(got) != tt.want || last.Entries != tt.want || tt.n > 0 && (last.Of != tt.of || !last.Counted) {
			t.Errorf("%s: %d lines, %+v, %v, want %d", tt.name, len(got), last, err, tt.want)
			continue
		}
		for i, want := range map[int]int64{0: tt.first, len(got) - 1: tt.last} {
			if index, _ := decisionlog.Index(lineAt(got, i)); len(got) > 0 && index != want {
				t.Errorf("%s: line %d is entry %d, want %d", tt.name, i, index, want)
			}
		}
	}
}

// TestLastCounts holds that what else is selected is counted as far as is asked
// for, and that there may be more is told.
func TestLastCounts(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	fill(t, l, 0, 5000)
	wait(t, func() bool { return l.Head().Size == 5000 })
	for _, tt := range []struct {
		n, most int
		want    string
	}{{1, 0, "1000+"}, {1, 2000, "2000+"}, {2500, 0, "3000+"}, {1, 10_000, "5000"}, {5000, 0, "5000"}} {
		if last, err := l.Last(t.Context(), decisionlog.Filter{}, tt.n, tt.most); err != nil || last.Total() != tt.want || last.Entries != tt.n {
			t.Errorf("the last %d of %d: %+v, %s, %v, want %s", tt.n, tt.most, last, last.Total(), err, tt.want)
		}
	}
}

// The filter of a task selects what package approval recorded about it, and the evaluation by its approval.
func TestFilterOfTask(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	mustAppend(t, l, slices.Concat(various(t, l), lifted(), calls())...)
	var got []int64
	for _, line := range selected(t, l.Reader, decisionlog.Filter{Task: "arq_1"}) {
		n, _ := decisionlog.Index(line)
		got = append(got, n)
	}
	if want := []int64{6, 7, 8, 9, 10, 11, 12, 13, 15, 16}; !slices.Equal(got, want) {
		t.Errorf("entries %d, want %d", got, want)
	}
	for name, f := range map[string]decisionlog.Filter{
		"another task":       {Task: "arq_"},
		"an item's resource": {Task: "arq_1", Resource: "doc:2", Subject: "alice", Kind: decisionlog.KindRequest},
	} {
		if n := len(selected(t, l.Reader, f)); n != map[bool]int{true: 1}[f.Kind != ""] {
			t.Errorf("%s: %d entries", name, n)
		}
	}
}

// A query for the latest entries says how far it looked. Queries that continue there find every entry once.
func TestLatest(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched})
	fill(t, l, 0, 5500)
	wait(t, func() bool { return l.Head().Size == 5500 })
	allow := true
	none := decisionlog.Filter{Subject: "nobody"}
	for _, tt := range []struct {
		name        string
		filter      decisionlog.Filter
		n           int
		look        decisionlog.Look
		found       int
		from, until int64
		more        bool
	}{
		{"a few", decisionlog.Filter{}, 3, decisionlog.Look{Entries: 2000, Time: time.Hour}, 3, 5497, 5500, true},
		{"of those selected", decisionlog.Filter{Decision: &allow}, 3, decisionlog.Look{Entries: 2000, Time: time.Hour}, 3, 5494, 5500, true},
		{"nothing", none, 3, decisionlog.Look{Entries: 2000, Time: time.Hour}, 0, 3500, 5500, true},
		{"nothing in parts of windows", none, 3, decisionlog.Look{Entries: 2345, Time: time.Hour}, 0, 3155, 5500, true},
		{"nothing in any", none, 3, decisionlog.Look{Entries: 100_000, Time: time.Hour}, 0, 0, 5500, false},
		{"too slow", none, 3, decisionlog.Look{Entries: 100_000, Time: -1}, 0, 4500, 5500, true},
		{"older", decisionlog.Filter{Until: 10}, 50, decisionlog.Look{Entries: 2000, Time: time.Hour}, 10, 0, 10, false},
		{"exactly the rest", decisionlog.Filter{Until: 10}, 10, decisionlog.Look{Entries: 2000, Time: time.Hour}, 10, 0, 10, false},
		{"from an index", decisionlog.Filter{From: 5400}, 500, decisionlog.Look{Entries: 2000, Time: time.Hour}, 100, 5400, 5500, false},
		{"of some tenants", decisionlog.Filter{Tenants: []string{""}, Decision: &allow}, 3, decisionlog.Look{Entries: 2000, Time: time.Hour}, 3, 5494, 5499, true},
		{"nothing of some tenants", decisionlog.Filter{Tenants: []string{"acme"}}, 3, decisionlog.Look{Entries: 100_000, Time: time.Hour}, 0, 0, 0, false},
	} {
		last, err := l.Latest(t.Context(), tt.filter, tt.n, tt.look)
		if err != nil || last.Entries != tt.found || last.LookedFrom != tt.from || last.LookedUntil != tt.until || last.More != tt.more {
			t.Errorf("%s: %+v, %v", tt.name, last, err)
		}
		if n := len(selected(t, l.Reader, last.Filter)); n != tt.found {
			t.Errorf("%s: %d lines", tt.name, n)
		}
	}
	var all int
	for f, more := (decisionlog.Filter{Decision: &allow}), true; more; {
		last, err := l.Latest(t.Context(), f, 700, decisionlog.Look{Entries: 1000, Time: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		all += len(selected(t, l.Reader, last.Filter))
		f.Until, more = last.LookedFrom, last.More
	}
	if all != 2750 {
		t.Errorf("pages have %d entries, want 2750", all)
	}
}

// selected returns the lines that f selects.
func selected(t testing.TB, r *decisionlog.Reader, f decisionlog.Filter) (all [][]byte) {
	t.Helper()
	for line, err := range r.Select(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(line))
	}
	return all
}

func lineAt(lines [][]byte, i int) []byte {
	if i < 0 || i >= len(lines) {
		return nil
	}
	return lines[i]
}

func TestLookup(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Durability: decisionlog.Batched, SegmentBytes: 1})
	mustAppend(t, l, various(t, l)...)
	start := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	var ids []string
	for n := range 1000 {
		e := entry(n)
		e.Time = start.Add(time.Duration(n) * time.Minute)
		if n == 500 {
			e.Time = start.Add(-24 * time.Hour) // a clock that was wrong
		}
		e.ID = idAt(start.Add(time.Duration(n)*time.Minute), n)
		ids = append(ids, e.ID)
		mustAppend(t, l, e)
	}
	wait(t, func() bool { return l.Head().Size == 1006 })
	for n, id := range ids {
		if n%83 != 0 && n != 500 {
			continue
		}
		record, item, err := l.Lookup(t.Context(), id)
		if err != nil || record.Index != int64(n+6) || record.Entry.ID != id || item != -1 {
			t.Errorf("entry %d: %v, item %d, %v", n, record, item, err)
		}
	}
	if record, item, err := l.Lookup(t.Context(), "d.1"); err != nil || record.Index != 3 || item != 1 {
		t.Errorf("an item: %v, item %d, %v", record, item, err)
	}
	for _, id := range []string{"", "x", "d.2", "d.-1", "d.01", "d.x", "d.1.1", "b.0", idAt(start, 5000), idAt(start.Add(-time.Hour), 1)} {
		if record, _, err := l.Lookup(t.Context(), id); !errors.Is(err, decisionlog.ErrNoEntry) {
			t.Errorf("%q: %v, %v, want ErrNoEntry", id, record, err)
		}
	}
}

// idAt is a UUID of version 7 as it is made at a time.
func idAt(at time.Time, n int) string {
	ms := at.UnixMilli()
	id := uuid.UUID{byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms), 0x70, 0, 0x80, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)}
	return id.String()
}

// The forms of the same entries are held against golden files.
func TestEncoder(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	mustAppend(t, l, slices.Concat(various(t, l), lifted(), calls())...)
	for _, format := range []string{decisionlog.FormatJSONL, decisionlog.FormatCSV, decisionlog.FormatOCSF} {
		var out bytes.Buffer
		encoder, err := decisionlog.NewEncoder(&out, format)
		if err != nil {
			t.Fatal(err)
		}
		for line, err := range l.Select(t.Context(), decisionlog.Filter{}) {
			if err == nil {
				err = encoder.Encode(line)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := encoder.Flush(); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "various."+format)
		if *update {
			if err := os.WriteFile(golden, out.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
		switch format {
		case decisionlog.FormatJSONL:
			if out.String() != string(export(t, l.Reader)) {
				t.Error("the lines are not those that are exported")
			}
		case decisionlog.FormatCSV:
			checkCSV(t, out.String())
		case decisionlog.FormatOCSF:
			checkOCSF(t, out.Bytes())
		}
	}
	if _, err := decisionlog.NewEncoder(new(bytes.Buffer), "xml"); err == nil {
		t.Error("there is a format xml")
	}
}

// No cell of a table begins like a formula, in any width of the character.
func TestTableHasNoFormulas(t *testing.T) {
	for _, first := range "=+-@\uFF1D\uFF0B\uFF0D\uFF20" {
		l := openLog(t, t.TempDir(), decisionlog.Config{})
		name := string(first) + "SUM(1)"
		mustAppend(t, l, &decisionlog.Entry{ID: "e1", Time: time.Now(), Kind: decisionlog.KindEvaluation, Caller: name, Request: jsontext.Value(`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"d"}}`), Result: &decisionlog.Result{Decision: true}})
		var out bytes.Buffer
		encoder, err := decisionlog.NewEncoder(&out, decisionlog.FormatCSV)
		if err == nil {
			err = errors.Join(encoder.Encode(export(t, l.Reader)), encoder.Flush())
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), ",'"+name+",") {
			t.Errorf("%q: %s", name, out.String())
		}
	}
}

// checkCSV checks that no cell is a formula to a spreadsheet.
func checkCSV(t *testing.T, text string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, cell := range row {
			if cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) {
				t.Errorf("the cell %q is a formula", cell)
			}
		}
	}
}

// checkOCSF holds events against what OCSF requires of them, which is in
// testdata, and against what the guide says of activities.
func checkOCSF(t *testing.T, text []byte) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("testdata/ocsf-1.5.0.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	activities, uids := make(map[string]float64), make(map[string]bool)
	for line := range bytes.Lines(text) {
		event, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(event); err != nil {
			t.Errorf("%v\n%s", err, line)
		}
		var read struct {
			Time     int64     `json:"time"`
			Precise  time.Time `json:"time_dt"`
			Class    float64   `json:"class_uid"`
			Activity float64   `json:"activity_id"`
			Type     float64   `json:"type_uid"`
			Name     string    `json:"activity_name"`
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(line, &read); err != nil {
			t.Fatal(err)
		}
		if read.Type != 100*read.Class+read.Activity || read.Precise.UnixMilli() != read.Time {
			t.Errorf("type_uid or time_dt disagree: %s", line)
		}
		if uids[read.Metadata.UID] {
			t.Errorf("two events have the uid %s", read.Metadata.UID)
		}
		uids[read.Metadata.UID] = true
		if id, _, _ := strings.Cut(read.Metadata.UID, "."); strings.Contains(id, "-") && read.Class == 3005 {
			activities[id+" "+read.Name] = read.Activity
		}
	}
	want := map[string]float64{
		"request-0 submit": 99, "approval-1 approve": 99, "approval-2 Assign Privileges": 1, "approval-3 use": 99,
		"approval-4 Revoke Privileges": 2, "approval-5 deny": 99, "request-6 expire": 99,
	}
	if diff := cmp.Diff(want, activities); diff != "" {
		t.Errorf("activities (-want +got):\n%s", diff)
	}
}
