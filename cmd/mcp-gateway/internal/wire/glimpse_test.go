package wire_test

import (
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// The id of a message is seen wherever it stands, in parts of any size, and is
// not that of a member further in.
func TestGlimpse(t *testing.T) {
	huge := strings.Repeat(`{"id":8},`, 10000) + "1"
	for _, test := range []struct {
		text, id                string
		method, isResult, isErr bool
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"m","params":[` + huge + `]}`, "7", true, false, false},
		{`{"method":"m","params":{"a":[` + huge + `],"id":9},"jsonrpc":"2.0","id" : "a\",\"id\":9"}`, `"a\",\"id\":9"`, true, false, false},
		{`{"result":{"s":"\\\"}","a":[` + huge + `]},"id":7}`, "7", false, true, false},
		{`{"error":{"id":1},"id":-3}`, "-3", false, false, true},
		{`{"method":"m","params":{"id":1}}`, "", true, false, false},
		{`{"method":"m","id":{"id":1}}`, "", true, false, false},
		{`{"method":"m","id":1.5}`, "", true, false, false},
		{`{"method":"m","id":"` + strings.Repeat("x", 1000) + `"}`, "", true, false, false},
		{`{"method":"m","id":12`, "", true, false, false},
		{`[{"method":"m","id":1}]`, "", false, false, false},
		{`[],{"method":"m","id":1}`, "", false, false, false},
		{"", "", false, false, false},
	} {
		for _, size := range []int{1, 7, len(test.text) + 1} {
			s := new(wire.Scanner)
			for text := []byte(test.text); len(text) > 0; text = text[min(size, len(text)):] {
				s.Scan(text[:min(size, len(text))])
			}
			if got := s.Glimpse(); string(got.ID) != test.id || got.Method != test.method || got.Result != test.isResult || got.Error != test.isErr {
				t.Errorf("%.80s: %+v", test.text, got)
			}
		}
	}
}
