package enforce_test

import (
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
