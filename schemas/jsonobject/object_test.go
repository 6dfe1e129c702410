package jsonobject_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

func TestEdit(t *testing.T) {
	o, err := jsonobject.Parse(jsontext.Value(`{"b": 1.0, "a":"x", "c":{"z":1, "y":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	o.Put("a", nil)
	o.Put("d", jsontext.Value(`[1, 2]`))
	if err := o.Set("e", map[string]int{"n": 2, "m": 1}); err != nil {
		t.Fatal(err)
	}
	o.Remove("d", "unknown")
	got, err := o.Encode()
	if want := `{"b":1.0,"c":{"z":1,"y":2},"e":{"m":1,"n":2}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func TestAbsentObjectHasNoMembers(t *testing.T) {
	for _, text := range []jsontext.Value{nil, jsontext.Value("null")} {
		checkAbsent(t, text)
	}
}

func checkAbsent(t *testing.T, text jsontext.Value) {
	t.Helper()
	o, err := jsonobject.Parse(text)
	if err != nil || len(o) != 0 {
		t.Fatal(o, err)
	}
	if text, err := o.EncodeMembers(); text != nil || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := o.Encode(); string(text) != "{}" || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	o.Put("a", jsontext.Value("1"))
	if text, err := o.EncodeMembers(); string(text) != `{"a":1}` || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

func TestOtherValuesAreNoObjects(t *testing.T) {
	for _, text := range []string{`[]`, `1`, `{"a":1,"a":2}`, `{"a":1`, ``, `nul`} {
		if o, err := jsonobject.Parse(jsontext.Value(text)); err == nil {
			t.Errorf("%s is %v", text, o)
		}
	}
}
