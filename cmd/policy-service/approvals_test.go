package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/obligations/plain"
	"github.com/policy-service/policy-service/pdp"
	"github.com/policy-service/policy-service/schemas/authzen"
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

// An approver is warned of letters that look like others.
func TestDescribeLookAlikes(t *testing.T) {
	for id, warned := range map[string]bool{"\u0440aypal": true, "paypal": false, "\u0440\u0430\u0431\u043e\u0442\u0430": false} {
		got := describeRequest(&pdp.AccessRequest{Request: approval.Request{Items: []approval.Item{{Resource: authzen.Entity{Type: "shop", ID: id}}}}})
		want := "\nwarning    words with look-alike letters of two alphabets: " + id + "\n"
		if strings.HasSuffix(got, want) != warned || strings.Contains(got, "warning") != warned {
			t.Errorf("described as\n%s", got)
		}
	}
}

// A denial is no part of a quorum.
func TestDescribeDenied(t *testing.T) {
	for approve, want := range map[bool]string{true: "(1 of 1)", false: "(0 of 1)"} {
		got := describeRequest(&pdp.AccessRequest{Request: approval.Request{Items: []approval.Item{{Template: "sre", Votes: []approval.Vote{{Approve: approve}}}}}})
		if !strings.Contains(got, want) {
			t.Errorf("approved %t, described as\n%s", approve, got)
		}
	}
}

// Who revokes a request is told which id that takes.
func TestRevokeOfRequest(t *testing.T) {
	err := (&approvalsRevokeCmd{ID: "arq_1"}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "needs the approval's id (apr_...)") {
		t.Errorf("%v", err)
	}
}

// hostile is text that would move, hide or forge what stands beside it.
const hostile = "a\u202Eb\u2066\u200B\u00AD\u2028\U000E0041\u009B2J\u007F\x1b[2J\nstatus     approved\r\tz"

// fill puts text into every string of v, so many levels deep, and into every
// JSON text, which it spreads over lines.
func fill(v reflect.Value, text string, deep int) {
	switch kind := v.Kind(); {
	case deep == 0 || v.Type() == reflect.TypeFor[time.Time]():
	case v.Type() == reflect.TypeFor[jsontext.Value]():
		quoted, err := jsontext.AppendQuote(nil, text)
		if err != nil {
			panic(err)
		}
		v.SetBytes(fmt.Appendf(nil, "{\n%s:\t%[1]s}", quoted))
	case kind == reflect.String:
		v.SetString(text)
	case kind == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text, deep-1)
	case kind == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text, deep-1)
		fill(value, text, deep-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, deep-1)
	case kind == reflect.Struct:
		for field := range v.Type().Fields() {
			if field.IsExported() {
				fill(v.FieldByIndex(field.Index), text, deep-1)
			}
		}
	}
}

// Nothing that a caller, an author or an approver wrote hides or forges
// anything in a terminal, wherever it stands.
func TestApproversSeeWhatIsThere(t *testing.T) {
	var calm, bad pdp.AccessRequest
	fill(reflect.ValueOf(&calm).Elem(), "a", 8)
	fill(reflect.ValueOf(&bad).Elem(), hostile, 8)
	var calmOne, badOne authzen.Capability
	fill(reflect.ValueOf(&calmOne).Elem(), "a", 8)
	fill(reflect.ValueOf(&badOne).Elem(), hostile, 8)
	for name, shown := range map[string][2]string{
		"capability":   {describeCapability(&calmOne), describeCapability(&badOne)},
		"capabilities": {strings.Join(capabilityRow(&calmOne), "  "), strings.Join(capabilityRow(&badOne), "  ")},

		"show": {describeRequest(&calm), describeRequest(&bad)},
		"list": {strings.Join(requestRow(&calm), "  "), strings.Join(requestRow(&bad), "  ")},
		"log":  {row(decided("a")), row(decided(hostile))},
	} {
		if strings.Count(shown[0], "\n") != strings.Count(shown[1], "\n") || strings.Count(shown[0], "\t") != strings.Count(shown[1], "\t") {
			t.Errorf("%s: a value begins a line or a column:\n%s", name, shown[1])
		}
		for _, r := range shown[1] {
			if r != '\n' && r != '\t' && r != ' ' && !unicode.IsPrint(r) {
				t.Errorf("%s shows %U", name, r)
			}
		}
	}
}

// decided is a row of the log with a text in every cell.
func decided(text string) (d decisionlog.DecisionRow) {
	fill(reflect.ValueOf(&d).Elem(), text, 8)
	return d
}

// What is printed as a whole keeps its lines, and nothing else that cannot be
// seen. The program's own log does, too.
func TestPrintLines(t *testing.T) {
	var out strings.Builder
	if err := printLines(&out, func(w io.Writer) error { _, err := io.WriteString(w, "allow\n  reason \u202Ey\u009B\n"); return err }); err != nil {
		t.Error(err)
	}
	if got, want := out.String(), "allow\n  reason \\u{202E}y\\u{009B}\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	out.Reset()
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: plain.Attr}))
	log.Info("m", "path", "/\u202E", "error", errors.New("\u200B"), "keys", []string{"\u00AD"})
	if strings.ContainsAny(out.String(), "\u202E\u200B\u00AD") {
		t.Errorf("the log has %q", out.String())
	}
}

// A list is followed from page to page to its end.
func TestListFollowsPages(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch r.URL.Query().Get("token") {
		case "":
			io.WriteString(w, `{"requests":[{"id":"arq_1","items":[{}]},{"id":"arq_2","items":[{}]}],"page":{"next_token":"n+1","count":2}}`)
		case "n+1":
			io.WriteString(w, `{"requests":[{"id":"arq_3","items":[{}]}]}`)
		}
	}))
	defer server.Close()
	desk := approvalsDesk{adminFlags{Admin: server.URL}}
	list, err := desk.list(t.Context(), "pending")
	if err != nil || len(list.Requests) != 3 || list.Requests[2].ID != "arq_3" {
		t.Errorf("%+v, %v", list, err)
	}
	if want := []string{"status=pending", "status=pending&token=n%2B1"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// Who is shown a request sees the digest of its sheet, what they may do, and how voters proved who they
// are.
func TestDescribeRequestSaysWhoMay(t *testing.T) {
	sheet := "sha256:7f3a91c2" + strings.Repeat("0", 56)
	for _, test := range []struct {
		request pdp.AccessRequest
		want    []string
	}{
		{pdp.AccessRequest{Sheet: sheet, May: []string{"approve", "deny"}}, []string{"sheet      7f3a 91c2\n", "you may    approve, deny\n"}},
		{pdp.AccessRequest{WhyNot: "own_request"}, []string{"you may    nothing (own request)\n"}},
		{pdp.AccessRequest{May: []string{"revoke"}, WhyNot: "decided"}, []string{"you may    revoke (decided)\n"}},
		{pdp.AccessRequest{Request: approval.Request{Items: []approval.Item{{Votes: []approval.Vote{{
			Sheet: sheet, Authn: &approval.Authn{Method: "oidc", Issuer: "https://idp.example.com", Subject: "00u1", ACR: "phr"},
		}}}}}}, []string{"    by     oidc https://idp.example.com 00u1 phr sheet 7f3a 91c2\n"}},
	} {
		got := describeRequest(&test.request)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in:\n%s", want, got)
			}
		}
	}
	if got := describeRequest(&pdp.AccessRequest{}); strings.Contains(got, "you may") || strings.Contains(got, "sheet") {
		t.Errorf("of a server that says nothing:\n%s", got)
	}
}
