// Package callers verifies credentials: API keys, JSON Web Tokens (RFC 8725) and
// client certificates. It says who sent a request, by which names that person is
// known, and what the credential is good for.
//
// The law it keeps: a credential is good or it is an error. What a request says
// beside its credential is never identity, and what a credential says of itself
// chooses neither the key that verifies it nor how. A person may hold several
// credentials and have several names; whoever keeps people apart compares all of
// [Caller.Names].
//
// The PDP and the gateway before it verify by this package. It knows HTTP
// requests, and neither a router nor policies.
package callers
