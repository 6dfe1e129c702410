package enforce_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce/enforcetest"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// A declaration that is not well-formed requires a person, and so does an unknown mode.
func TestReadAuthorization(t *testing.T) {
	strict := &enforce.Authorization{Required: true, Mode: enforce.ModeUserApproval}
	for definition, want := range map[string]*enforce.Authorization{
		`{"name":"a"}`:                                                           nil,
		`{"description":"\"authorization\""}`:                                    nil,
		`{"authorization":{"required":true}}`:                                    strict,
		`{"authorization":{"required":false}}`:                                   {Mode: enforce.ModeUserApproval},
		`{"authorization":null}`:                                                 strict,
		`{"authorization":true}`:                                                 strict,
		`{"authorization":{}}`:                                                   strict,
		`{"authorization":{"require":true}}`:                                     strict,
		`{"authorization":{"required":"no"}}`:                                    strict,
		`{"authorization":{"required":null}}`:                                    strict,
		`{"authorization":[{"required":true}]}`:                                  strict,
		`{"authorization":{"required":false,"mode":7}}`:                          strict,
		`{"authorization":{"required":false,"timeout":0}}`:                       strict,
		`{"authorization":{"required":false,"timeout":-1}}`:                      strict,
		`{"authorization":{"required":false,"timeout":"5m"}}`:                    strict,
		`{"authorization":{"required":false,"timeout":1.5}}`:                     strict,
		`{"authorization":{"required":false,"timeout":99999999999999999999}}`:    strict,
		`{"authorization":{"required":false,"message":{}}}`:                      strict,
		`{"authorization":{"required":true,"mode":"automatic"}}`:                 {Required: true, Mode: enforce.ModeAutomatic},
		`{"authorization":{"required":true,"mode":"delegated"}}`:                 {Required: true, Mode: enforce.ModeDelegated},
		`{"authorization":{"required":true,"mode":"Automatic"}}`:                 strict,
		`{"authorization":{"required":true,"mode":"none"}}`:                      strict,
		`{"authorization":{"required":true,"timeout":300,"message":"a\u202eb"}}`: {Required: true, Mode: enforce.ModeUserApproval, Timeout: 300, Message: `a\u{202E}b`},
	} {
		if diff := cmp.Diff(want, enforce.ReadAuthorization(jsontext.Value(definition))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", definition, diff)
		}
	}
	long := enforce.ReadAuthorization(jsontext.Value(`{"authorization":{"required":true,"message":"` + strings.Repeat("ä", 5000) + `"}}`))
	if n := len([]rune(long.Message)); n > 512 {
		t.Errorf("a message of %d characters", n)
	}
}

// What a tool declares goes to the PDP. A permit does not suffice for a tool that
// requires a person, unless an approval stands: nothing of it is carried out.
func TestToolsTighten(t *testing.T) {
	const plainly, approved = `{"decision":true}`, `{"decision":true,"context":{"approval":{"id":"a","approved_until":"2026-11-21T00:00:00Z"}}}`
	const obliged = `{"decision":true,"context":{"obligations":[{"id":"1","type":"notification","properties":{}}]}}`
	declare := func(mode enforce.AuthorizationMode) *enforce.Authorization {
		return &enforce.Authorization{Required: true, Mode: mode, Timeout: 300, Message: "production"}
	}
	for _, test := range []struct {
		name     string
		declared *enforce.Authorization
		answer   string
		runs     bool
		sent     string // at context.gateway.authorization
	}{
		{"nothing", nil, plainly, true, ""},
		{"not required", &enforce.Authorization{Mode: enforce.ModeUserApproval}, plainly, true, `{"mode":"user_approval","required":false}`},
		{"automatic", declare(enforce.ModeAutomatic), plainly, true, `{"message":"production","mode":"automatic","required":true,"timeout":300}`},
		{"a person", declare(enforce.ModeUserApproval), plainly, false, `{"message":"production","mode":"user_approval","required":true,"timeout":300}`},
		{"a person, and an obligation", declare(enforce.ModeUserApproval), obliged, false, `{"message":"production","mode":"user_approval","required":true,"timeout":300}`},
		{"a person who has approved", declare(enforce.ModeUserApproval), approved, true, `{"message":"production","mode":"user_approval","required":true,"timeout":300}`},
		{"a delegate", declare(enforce.ModeDelegated), plainly, false, `{"message":"production","mode":"delegated","required":true,"timeout":300}`},
	} {
		for _, codes := range []enforce.Codes{"", enforce.CodesMCPX} {
			p, told := &pdp{status: 200, body: test.answer}, 0
			v := gate(p, func(c *enforce.Config) {
				c.Denial.Codes = codes
				c.Tools = enforcetest.Tools{Find: func(context.Context, *enforce.Call) (*enforce.Tool, error) {
					return &enforce.Tool{Digest: "sha256:1", Authorization: test.declared}, nil
				}}
				c.Obligations = client.Obligations{"notification": func(context.Context, authzen.Obligation) error {
					told++
					return nil
				}}
			}).Judge(t.Context(), call(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}`))
			if (v.Forward != nil) != test.runs || told > 0 {
				t.Errorf("%s: %+v, %d told", test.name, v, told)
			}
			if !test.runs {
				want := `"code":4030,"message":"the tool requires the approval of a person, and no policy asks for one","data":{"reason_code":"authorization_required"`
				if codes == enforce.CodesMCPX {
					want = `"code":-32001,"message":"Authorization required","data":{"reason_code":"authorization_required"`
				}
				if got := string(v.Answer.Error); !strings.Contains(got, want) {
					t.Errorf("%s: %s", test.name, got)
				}
			}
			var asked struct {
				Context struct {
					Gateway struct {
						Authorization jsontext.Value `json:"authorization"`
					} `json:"gateway"`
				} `json:"context"`
			}
			if err := json.Unmarshal([]byte(p.sent), &asked); err != nil {
				t.Fatal(err)
			}
			sent := asked.Context.Gateway.Authorization
			if err := sent.Canonicalize(); test.sent != "" && err != nil || string(sent) != test.sent {
				t.Errorf("%s: the PDP gets %s", test.name, p.sent)
			}
		}
	}
}

// The time for an approval counts from when the call began to wait.
func TestAuthorizationUntil(t *testing.T) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, a := range map[string]*enforce.Authorization{
		"0001-01-01 00:00:00 +0000 UTC": {Required: false, Timeout: 300}, "2026-11-21 12:05:00 +0000 UTC": {Required: true, Timeout: 300},
	} {
		if got := fmt.Sprint(a.Until(since)); got != want {
			t.Errorf("%+v: %s", a, got)
		}
	}
	if got := (*enforce.Authorization)(nil).Until(since); !got.IsZero() {
		t.Error(got)
	}
}
