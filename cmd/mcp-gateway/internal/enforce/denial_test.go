package enforce_test

import (
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
)

// What a client gets of a refusal is by the profile of codes; what is no denial
// keeps its code in each.
func TestPresent(t *testing.T) {
	for _, test := range []struct {
		codes   enforce.Codes
		code    int
		reason  string
		want    int
		message string
		text    string
	}{
		{"", 0, enforce.ReasonDenied, 4030, "not today", ""},
		{enforce.CodesApplication, 0, enforce.ReasonPending, 4030, "not today", ""},
		{enforce.CodesCOAZ, 0, enforce.ReasonQuarantined, -32001, "not today", ""},
		{enforce.CodesMCPX, 0, enforce.ReasonDenied, -32002, "Authorization denied", "not today"},
		{enforce.CodesMCPX, 0, enforce.ReasonPending, -32001, "Authorization required", "not today"},
		{enforce.CodesMCPX, 0, enforce.ReasonAuthorization, -32001, "Authorization required", "not today"},
		{enforce.CodesMCPX, 0, enforce.ReasonNotApproved, -32002, "Authorization denied", "not today"},
		{enforce.CodesMCPX, -32401, enforce.ReasonDenied, -32401, "not today", ""},
		{enforce.CodesMCPX, -32603, enforce.ReasonPDP, -32603, "not today", ""},
	} {
		r := enforce.NewChecker(nil, enforce.Denial{Codes: test.codes}).Present(&enforce.Refusal{Code: test.code, Message: "not today", Data: enforce.Data{Reason: test.reason}})
		if r.Code != test.want || r.Message != test.message || r.Data.Text != test.text || r.Data.Reason != test.reason || r.Status != 200 {
			t.Errorf("%q, %s: %+v", test.codes, test.reason, r)
		}
	}
}

// With tell_reason, the reason is what the person wrote who refused, with any codes.
func TestTellReason(t *testing.T) {
	for codes, without := range map[enforce.Codes]string{"": "", enforce.CodesMCPX: "not today: broken"} {
		for tells, want := range map[bool]string{false: without, true: "broken"} {
			k := enforce.NewChecker(nil, enforce.Denial{Codes: codes, TellReason: tells})
			r := k.Present(&enforce.Refusal{Message: "not today: broken", Data: enforce.Data{Reason: enforce.ReasonNotApproved, Comment: "broken"}})
			if r.Data.Text != want {
				t.Errorf("%q, %v: %q", codes, tells, r.Data.Text)
			}
			r = k.Present(&enforce.Refusal{Message: "no", Data: enforce.Data{Reason: enforce.ReasonNotApproved, Comment: strings.Repeat("ä", 5000)}})
			if n := len([]rune(r.Data.Text)); tells && n != 512 {
				t.Errorf("%d characters", n)
			}
			r = k.Present(&enforce.Refusal{Message: "no", Data: enforce.Data{Reason: enforce.ReasonDenied, Text: "policy"}})
			if codes == "" && r.Data.Text != "policy" {
				t.Errorf("without a comment: %q", r.Data.Text)
			}
		}
	}
}
