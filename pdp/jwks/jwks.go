// Package jwks reads the published keys of token issuers (RFC 7517), for the PDP
// and for the gateway.
//
// The law it keeps is that of RFC 8725: what a token says chooses neither where
// its keys come from nor, beyond what was configured, how they verify it. Keys
// are a small document, read soon, from one URL, without redirects, and not again
// for every unknown key that a stranger's token names.
package jwks

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
)

// asymmetric are the algorithms whose keys an issuer can publish.
var asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// CheckURL refuses a URL that keys must not be read from.
func CheckURL(jwksURL string) error {
	u, err := url.Parse(jwksURL)
	if err != nil || u.Scheme != "https" && !IsThisHost(u.Hostname()) {
		return fmt.Errorf("must be an https URL, not %q", jwksURL)
	}
	return nil
}

// CheckAlgorithm refuses an algorithm that tokens must not be verified by.
func CheckAlgorithm(algorithm string) error {
	if !slices.Contains(asymmetric, algorithm) {
		return fmt.Errorf("algorithm %q is not one of %v", algorithm, asymmetric)
	}
	return nil
}

// IsThisHost reports whether the name or address of a URL is of the computer
// itself, to which plain text does not leave it.
func IsThisHost(name string) bool {
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.Unmap().IsLoopback()
}
