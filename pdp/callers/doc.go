// Package callers verifies credentials: API keys, JSON Web Tokens (RFC 8725) and client
// certificates. It returns the caller of a request, the caller's names, and what the credential
// permits.
//
// Invariants: a credential is valid or causes an error. Other parts of a request never determine
// identity. A credential never chooses the key or algorithm that verifies it. A person may have
// several credentials and names. Code that distinguishes people must compare all of [Caller.Names].
//
// The PDP and the MCP gateway use this package. It knows HTTP requests, but no router and no
// policies.
package callers
