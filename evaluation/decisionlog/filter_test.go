package decisionlog_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

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
		{ID: "b", Time: at.Add(time.Hour), Kind: decisionlog.KindEvaluation, Tenant: "acme", Request: ask("alice"), Caller: "gateway", RequestID: "r-1", LatencyMicros: 42,
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
		case *bool:
			v.Set(reflect.ValueOf(new(bool)))
		case []string:
			v.Set(reflect.ValueOf([]string{}))
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
		n, want     int
		first, last int64
	}{
		{"a few", decisionlog.Filter{}, 3, 3, 2597, 2599},
		{"none", decisionlog.Filter{}, 0, 0, 0, 0},
		{"more than a window", decisionlog.Filter{}, 1500, 1500, 1100, 2599},
		{"more than there are", decisionlog.Filter{}, 5000, 2600, 0, 2599},
		{"selected", decisionlog.Filter{Decision: &allow}, 600, 600, 1400, 2598},
		{"in a range", decisionlog.Filter{From: 10, Until: 20}, 5, 5, 15, 19},
		{"in a short range", decisionlog.Filter{From: 10, Until: 20}, 50, 10, 10, 19},
		{"of one id", decisionlog.Filter{ID: "entry-7"}, 10, 1, 7, 7},
	} {
		got, err := l.Last(t.Context(), tt.filter, tt.n)
		if err != nil || len(got) != tt.want {
			t.Errorf("%s: %d lines, %v, want %d", tt.name, len(got), err, tt.want)
			continue
		}
		for i, want := range map[int]int64{0: tt.first, len(got) - 1: tt.last} {
			if index, _ := decisionlog.Index(lineAt(got, i)); len(got) > 0 && index != want {
				t.Errorf("%s: line %d is entry %d, want %d", tt.name, i, index, want)
			}
		}
	}
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
	mustAppend(t, l, various(t, l)...)
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

// required are the attributes that OCSF 1.3 requires of every event, and of
// those of a class.
var required = map[float64][]string{
	0:    {"activity_id", "category_uid", "class_uid", "type_uid", "time", "severity_id", "metadata"},
	6003: {"actor", "api", "src_endpoint"},
	3004: {"entity"},
	3005: {"user"},
}

func checkOCSF(t *testing.T, text []byte) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var event map[string]any
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		class, _ := event["class_uid"].(float64)
		for _, name := range append(required[0], required[class]...) {
			if event[name] == nil {
				t.Errorf("the event lacks %s: %s", name, line)
			}
		}
		if want := fmt.Sprint(100*class + event["activity_id"].(float64)); fmt.Sprint(event["type_uid"]) != want || required[class] == nil {
			t.Errorf("type_uid is not %s: %s", want, line)
		}
	}
}
