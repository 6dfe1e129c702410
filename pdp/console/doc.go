// Package console serves pages for people: approvers, auditors, and those who write and operate
// policies.
//
// Pages are rendered by the server and work without scripts, except for live streams and for
// verification in the browser. The console has no data of its own: every page is made from answers
// of the admin API, which it asks in process with the identity of the person who is signed in. So
// scopes and tenants are enforced in one place, and every page has a twin for programs.
//
// Invariants:
//   - A GET request changes nothing but the state of signing in. The answer of the identity provider,
//     which is one, makes the vote that its nonce is bound to, once.
//   - A request that changes something comes from a page of this console, as far as the browser
//     tells, and belongs to a session.
//   - No text that somebody else wrote becomes markup, a script, a style or a followed attribute.
package console
