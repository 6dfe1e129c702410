package decisionlog_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

// A line has all members of an entry, in the order of the fields, as encoding by reflection writes
// them.
func TestLineHasEveryMember(t *testing.T) {
	full := reflect.New(reflect.TypeFor[decisionlog.Entry]()).Elem()
	occupy(t, full, 3)
	entries := []decisionlog.Entry{{}, full.Interface().(decisionlog.Entry)}
	for i := range full.NumField() {
		one := reflect.New(full.Type()).Elem()
		one.Field(i).Set(full.Field(i))
		entries = append(entries, one.Interface().(decisionlog.Entry))
	}
	result := reflect.TypeFor[decisionlog.Result]()
	for i := range result.NumField() {
		one := reflect.New(result).Elem()
		one.Field(i).Set(full.FieldByName("Result").Elem().Field(i))
		r := one.Interface().(decisionlog.Result)
		entries = append(entries, decisionlog.Entry{Result: &r, Evaluations: []decisionlog.Result{{}, r, {Decision: true}}})
	}
	l, err := decisionlog.Open(t.TempDir(), decisionlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the log has no archive of the revision
	for _, e := range entries {
		e.Masked = nil // set by the log
		mustAppend(t, l, &e)
		want, err := json.Marshal(&e, jsontext.PreserveRawStrings(true))
		if err != nil {
			t.Fatal(err)
		}
		last := selected(t, l.Reader, decisionlog.Filter{From: l.Head().Size - 1})
		n, _ := decisionlog.Index(last[0])
		if diff := cmp.Diff(string(decisionlog.AppendIndex(n))+string(want[1:]), string(last[0])); diff != "" {
			t.Error(diff)
		}
	}
}

// occupy sets every field to a non-zero value, down to a limited depth.
func occupy(t *testing.T, v reflect.Value, depth int) {
	t.Helper()
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = time.Date(2026, 11, 20, 9, 30, 0, 1_500_000, time.FixedZone("", 3600)).UTC()
		return
	case *jsontext.Value:
		*at = jsontext.Value(`{"a":[1,"<\u00e9>"]}`)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("é\"\\\n<x>")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			occupy(t, v.Elem(), depth-1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			occupy(t, v.Index(i), depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		occupy(t, value, depth)
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), value)
	case reflect.Struct:
		for i := range v.NumField() {
			occupy(t, v.Field(i), depth)
		}
	default:
		t.Fatalf("a field is a %v", v.Kind())
	}
}
