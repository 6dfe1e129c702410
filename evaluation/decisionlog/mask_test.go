package decisionlog_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
)

const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

func withRequest(request string) *decisionlog.Entry {
	e := entry(0)
	e.Request = jsontext.Value(request)
	return e
}

func TestMask(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{Mask: []string{"ssn", "account-number"}, Unmask: []string{"page_token"}})
	tests := []struct {
		name, request string
		masked        []string
	}{
		{"nothing", `{"context":{"max_tokens":5,"tokenizer":"x","passwords_ok":true,"page_token":"p","secretary":"s"}}`, nil},
		{"names", `{"context":{"password":"hunter2","API-Key":"k","refreshToken":"t","x.authorization":"Basic x"}}`,
			[]string{"/request/context/password", "/request/context/API-Key", "/request/context/refreshToken", "/request/context/x.authorization"}},
		{"by configuration", `{"context":{"SSN":123,"userAccountNumber":"1"}}`, []string{"/request/context/SSN", "/request/context/userAccountNumber"}},
		{"whole values", `{"context":{"secret":{"a":[1,{"password":"x"}]},"token":null,"b":1}}`, []string{"/request/context/secret", "/request/context/token"}},
		{"a token by its shape", `{"context":{"a":["x","` + jwt + `"],"header":"Bearer ` + jwt + `"}}`, []string{"/request/context/a/1", "/request/context/header"}},
		{"a subject that is a token", `{"subject":{"type":"user","id":"` + jwt + `"}}`, []string{"/request/subject/id"}},
		{"escapes", `{"context":{"p\u0061ssword":"x","a/b~":{"pwd":"y"},"q\"\\":"z","note":"\"\\eyJ"}}`, []string{"/request/context/password", "/request/context/a~1b~0/pwd"}},
		{"lists", `{"context":{"secret_list":["a","b"],"secrets":["a2"],"token-list":[1,2,3],"playlist":["c"],"listing":"d"}}`,
			[]string{"/request/context/secret_list", "/request/context/secrets", "/request/context/token-list"}},
		{"pairs", `{"context":{"headers":[{"name":"authorization","value":"Bearer abc"},{"value":"zz9","name":"X-Api-Key"},{"name":"accept","value":"q"}]}}`,
			[]string{"/request/context/headers/0/value", "/request/context/headers/1/value"}},
		{"queries of URLs", `{"context":{"a":"https://h.example/x?page=1&api_key=k9k9","b":"/x?access_token=t9t9#top","c":"https://h.example/?q=a&max_tokens=5&api_key=","d":"is it a token? yes"}}`,
			[]string{"/request/context/a", "/request/context/b"}},
		{"what a tool declares", `{"context":{"gateway":{"authorization":{"required":true,"mode":"user_approval","message":"m","token":"t1t1"}}}}`,
			[]string{"/request/context/gateway/authorization/token"}},
		{"what looks like it", `{"context":{"gateway":{"authorization":"Bearer x1x1"},"authorization":{"a":"x2x2"},"other":{"gateway":{"authorization":{"a":"x3x3"}}}}}`,
			[]string{"/request/context/gateway/authorization", "/request/context/authorization", "/request/context/other/gateway/authorization"}},
		{"the proof of a capability", `{"context":{"capability":{"id":"cap_A","proof":{"timestamp":"t","nonce":"n1n1","signature":"s1s1"}},"nonce":"a","signature":"b"}}`,
			[]string{"/request/context/capability/proof/nonce", "/request/context/capability/proof/signature"}},
		{"the proofs of a batch", `{"evaluations":[{"context":{"capability":{"proof":{"nonce":"n2n2","other":1}}}}],"proof":{"nonce":"c"}}`,
			[]string{"/request/evaluations/0/context/capability/proof/nonce"}},
		{"no object", `"x"`, nil},
		{"a token alone", `"` + jwt + `"`, []string{"/request"}},
		{"with white space", "{ \"context\" : { \"password\" :\n \"x\" , \"a\" : 1 } }", []string{"/request/context/password"}},
	}
	for _, tt := range tests {
		mustAppend(t, l, withRequest(tt.request))
	}
	for i, got := range lines(t, l.Reader) {
		tt := tests[i]
		if diff := cmp.Diff(tt.masked, got.Masked); diff != "" {
			t.Errorf("%s: masked (-want +got):\n%s", tt.name, diff)
		}
		if want := strings.Count(string(got.Request), `"masked:`); want != len(tt.masked) {
			t.Errorf("%s: %s", tt.name, got.Request)
		}
		checkUnmasked(t, tt.name, tt.request, got)
	}
	for _, secret := range []string{"hunter2", jwt[:20], "Basic x"} {
		if bytes.Contains(export(t, l.Reader), []byte(secret)) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

// checkUnmasked checks that a request is recorded unchanged except for masked values.
func checkUnmasked(t *testing.T, name, sent string, got line) {
	t.Helper()
	want := decode(t, jsontext.Value(sent))
	recorded := decode(t, got.Request)
	for _, pointer := range got.Masked {
		want, recorded = without(want, pointer), without(recorded, pointer)
	}
	if diff := cmp.Diff(want, recorded); diff != "" {
		t.Errorf("%s: recorded otherwise (-want +got):\n%s", name, diff)
	}
}

func decode(t *testing.T, text jsontext.Value) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// without removes the value at a pointer of the line.
func without(v any, pointer string) any {
	tokens := strings.Split(strings.TrimPrefix(pointer, "/request"), "/")[1:]
	if len(tokens) == 0 {
		return nil
	}
	at := v
	for i, token := range tokens {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch container := at.(type) {
		case map[string]any:
			if i == len(tokens)-1 {
				container[token] = nil
			}
			at = container[token]
		case []any:
			n := int(token[0] - '0')
			if i == len(tokens)-1 {
				container[n] = nil
			}
			at = container[n]
		}
	}
	return v
}

// Equal values have equal masks in one log, also after it is reopened, and others in another log.
func TestMasksCorrelate(t *testing.T) {
	dir := t.TempDir()
	masks := func(dir string) (all []string) {
		l := openLog(t, dir, decisionlog.Config{})
		mustAppend(t, l,
			withRequest(`{"password":"x\u0079"}`), withRequest(`{"a":{"token":"xy"}}`),
			withRequest(`{"password":{"a":1,"b":2}}`), withRequest(`{"password":{ "b":2, "a":1 }}`), withRequest(`{"password":"z"}`))
		for _, got := range lines(t, l.Reader) {
			_, mask, _ := strings.Cut(string(got.Request), `"masked:`)
			all = append(all, mask[:22])
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	masks(dir)
	got := masks(dir)
	for i, want := range []int{0, 0, 2, 2, 4} {
		if got[i] != got[want] || got[i] != got[5+want] {
			t.Errorf("mask %d is %s and %s, and mask %d %s", i, got[i], got[5+i], want, got[want])
		}
	}
	if got[0] == got[2] || got[0] == got[4] {
		t.Error("different values have the same mask")
	}
	if other := masks(t.TempDir()); other[0] == got[0] {
		t.Error("another log has the same masks")
	}
	info, err := os.Stat(filepath.Join(dir, "mask.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
}

// An entry that cannot be masked is not recorded.
func TestMaskFails(t *testing.T) {
	l := openLog(t, t.TempDir(), decisionlog.Config{})
	for _, request := range []string{`{"password":`, `{"password":"x"`, `{"a":"\ud800"}`, `{"password":"x","password":"y"}`} {
		err := l.Append(t.Context(), withRequest(request))
		if err == nil || errors.Is(err, decisionlog.ErrUnavailable) {
			t.Errorf("%s: %v", request, err)
		}
	}
	if size := l.Head().Size; size != 0 {
		t.Errorf("%d entries are recorded", size)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mask.key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := decisionlog.Open(dir, decisionlog.Config{}); err == nil {
		l.Close()
		t.Error("a log opens with half a key")
	}
}
