package enforce_test

import (
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/pdp/client"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Only who waits for the same approval, calling and requesting, is restricted. Items are
// pairs of a call and its request:
//
//	y  permitted
//	n  denied
//	c  denied for want of a capability
//	f  denied until somebody fulfils the request
//	b  both of them
//	o  denied until an owner approves
//	e  not decided, although there is something to approve
func TestLevelOfACaller(t *testing.T) {
	const request = `"access_request":{"template":"fulfil","expires_at":"2026-11-20T12:00:00Z"}`
	const capability = `"capability_request":{"endpoint":"https://pdp.example.com","tools":["files:a"],"template":"owner"}`
	no := func(members ...string) string {
		return `{"decision":false,"context":{` + strings.Join(members, ",") + `}}`
	}
	items := map[rune]string{
		'y': `{"decision":true}`, 'n': `{"decision":false}`,
		'c': no(capability), 'f': no(request), 'b': no(request, capability),
		'o': no(strings.Replace(request, "fulfil", "owner", 1)),
		'e': no(request, `"error":{"status":400,"message":"what is this"}`),
	}
	for _, test := range []struct {
		answers string
		level   enforce.Level
	}{
		{"yf", enforce.LevelFull},
		{"cc", enforce.LevelFull},
		{"cf", enforce.LevelFull},
		{"of", enforce.LevelFull},
		{"on", enforce.LevelFull}, // policies that know no requests
		{"ff", enforce.LevelRestricted},
		{"bc", enforce.LevelRestricted},
		{"fy", enforce.LevelRestricted},
		{"nf", enforce.LevelUnknown},
		{"ny", enforce.LevelUnknown},
		{"nc", enforce.LevelUnknown},
		{"nn", enforce.LevelUnknown},
		{"ef", enforce.LevelUnknown},
		{"nfff", enforce.LevelRestricted},
		{"ffnfof", enforce.LevelFull},
	} {
		t.Run(test.answers, func(t *testing.T) {
			var answers, tools []string
			for i, item := range test.answers {
				answers = append(answers, items[item])
				if i%2 == 0 {
					tools = append(tools, string(rune('a'+i)))
				}
			}
			p := &pdp{status: 200, body: `{"evaluations":[` + strings.Join(answers, ",") + `]}`}
			g := gate(p, func(c *enforce.Config) {
				c.PDP = enforce.NewPDP(enforce.PDPConfig{URL: "https://pdp.example.com", Client: client.Config{Transport: p}})
				c.MapLevel = func(*enforce.Call, string, string) (calls, requests *authzen.EvaluationRequest, err error) {
					return &authzen.EvaluationRequest{}, &authzen.EvaluationRequest{}, nil
				}
			})
			level, err := g.Level(t.Context(), call(t, invoke), "files", tools)
			if err != nil || level != test.level {
				t.Errorf("%q, %v", level, err)
			}
		})
	}
}
