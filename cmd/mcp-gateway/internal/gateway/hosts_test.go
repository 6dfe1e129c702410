package gateway

import (
	"strings"
	"testing"
)

// Requests may be addressed to this host where it alone is listened on, and
// elsewhere to what the configuration names.
func TestHosts(t *testing.T) {
	for _, test := range []struct {
		address string
		hosts   []string
		want    string
	}{
		{"127.0.0.1:8090", nil, "localhost:8090 127.0.0.1:8090 [::1]:8090"},
		{"[::1]:8090", []string{"Gateway"}, "gateway localhost:8090 127.0.0.1:8090 [::1]:8090"},
		{"10.0.0.1:8443", []string{"gateway.example.com:8443"}, "gateway.example.com:8443"},
	} {
		if got := strings.Join(hosts(test.hosts, test.address), " "); got != test.want {
			t.Errorf("%s: %s", test.address, got)
		}
	}
}
