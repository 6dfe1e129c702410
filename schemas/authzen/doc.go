// Package authzen is the vocabulary of the service: the requests a PEP sends
// and the answers it gets, as the OpenID AuthZEN Authorization API 1.0 names
// them, and the tenant, actor, action, resource shape that speaks of the same
// decision.
//
// The law it keeps: what was sent is what is read. [Unmarshal] refuses a body
// that two parsers could read differently (a member named twice, in whatever
// escaping; bytes that are not UTF-8; a lone surrogate; anything behind the
// value), matches member names by case, tells a missing member from an empty
// one, and ignores members it does not know (AuthZEN 1.0, "JSON
// Serialization"). Properties and contexts stay the JSON text they came as, so
// that nothing is rounded, reordered or lost before a policy or an auditor
// sees it.
//
// The package knows no transport and no policy language.
package authzen
