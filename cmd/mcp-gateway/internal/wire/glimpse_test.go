package wire_test

import (
	"strings"
	"testing"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// The names of a message that was cut off tell which response it is.
func TestLook(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, test := range []struct {
		text, id      string
		result, error bool
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{"content":["xxx`, "7", true, false},
		{`{"result":{"content":["xxx`, "", true, false},
		{`{"result":` + deep + `,"jsonrpc":"2.0","id":"a"}`, `"a"`, true, false},
		{`{"error":{"code":1,"data":"xxx`, "", false, true},
		{`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"xxx`, "", false, false},
		{`{"params":{"result":"xxx`, "", false, false},
		{`{"jsonrpc":"2.0","id":7`, "7", false, false},
		{`["result"`, "", false, false},
		{`xxx`, "", false, false},
		{``, "", false, false},
	} {
		if got := wire.Look([]byte(test.text)); string(got.ID) != test.id || got.Result != test.result || got.Error != test.error {
			t.Errorf("%.60s: %s %v %v", test.text, got.ID, got.Result, got.Error)
		}
	}
}
