package webhook_test

import (
	"net/netip"
	"testing"

	"github.com/policy-service/policy-service/pdp/webhook"
)

// Callbacks do not go to an address that is not public, in any notation (AR-128 in
// conformance/testdata/rows.txt).
func TestCallbackAddresses(t *testing.T) {
	for address, public := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true,
		"127.0.0.1:80": false, "[::1]:80": false, "10.0.0.1:443": false, "172.16.0.1:443": false, "192.168.1.1:443": false,
		"169.254.169.254:80": false, "[fe80::1]:80": false, "[fc00::1]:80": false, "0.0.0.0:80": false, "[::]:80": false,
		"100.64.0.1:80": false, "224.0.0.1:80": false, "255.255.255.255:80": false, "198.18.0.1:80": false,
		"[::ffff:127.0.0.1]:80": false, "[64:ff9b::7f00:1]:80": false, "[2002:7f00:1::]:80": false, "[ff02::1]:80": false,
		"[fec0::1]:80": false, "[feff::1]:443": false, "[::7f00:1]:80": false, "[::5db8:d822]:443": false,
	} {
		if err := webhook.CheckAddress(address, nil); (err == nil) != public {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// An allowed address includes its port.
func TestCallbackAddressPorts(t *testing.T) {
	allowed := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8443"), netip.MustParseAddrPort("[fc00::1]:443")}
	for address, want := range map[string]bool{
		"10.0.0.1:8443": true, "[::ffff:10.0.0.1]:8443": true, "10.0.0.1:22": false, "10.0.0.2:8443": false, "[fc00::1]:443": true, "[fc00::1]:80": false, "93.184.216.34:22": true,
	} {
		if err := webhook.CheckAddress(address, allowed); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
