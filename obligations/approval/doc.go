// Package approval is the Access Request Service: it keeps access requests and
// approvals.
//
// # The law
//
// An approval is never access. It is a fact that the service can verify and
// that policies may ask for; what it is good for the engine decides, each time
// again, by the policies of that moment. And who may give one is itself a
// decision of the engine ([Config.CanApprove]). This package therefore knows no
// policies, and nothing in it can permit anything.
//
// A transition is committed together with the record of it, and nobody is told
// of it before that record is in the decision log ([Config.Record]). A task is
// decided once: of any number of people who decide at the same time, one does.
//
// # The states
//
// An Access Request has one item, or several ("bulk"). Each item is pending
// until it is approved, denied, cancelled or expired, and never changes then.
// An approved item carries an approval, which stands until it expires, is used
// up, is revoked or is superseded. All of this is one pure function, [next] in
// state.go, of a request, an event and a time.
//
// A request that nobody decides expires. Its handle is kept for a day longer
// than anything that came of it can matter, so that the PEP can learn how it
// ended, and is then forgotten. Until then it counts for what a tenant may keep.
//
// A PEP that has asked for it is called back when its request is decided, at
// least once if it can be reached. What it is told is how the task stands and
// never the approval; the task is where the truth is.
//
// # What an approval is bound to
//
// To the tenant, to the caller that asked, to the subject with its properties
// and its actor chain, to the resource and the action with theirs, and to the
// members of the context that count (the template says which; without it all
// of them but the service's own, see authzen.UnboundContext). Values are equal when their
// canonical forms (RFC 8785) are, but for integers, which are compared digit
// by digit: two that round to one float64 are two. Of the context a token and an
// item have a digest alone.
//
// # On disk
//
// One bbolt file. Every bucket but tasks, tokens, signing, outbox and last can
// be derived from tasks:
//
//	tasks      task id → request, as JSON
//	approvals  approval id → task id ‖ 0 ‖ item
//	pending    tenant ‖ 0 ‖ SHA-256 of the caller ‖ task id → nothing
//	kept       all, or tenant ‖ 0 ‖ tenant's name → bytes of requests that are kept
//	listed     tenant, or * for all ‖ 0 ‖ status ‖ 0 ‖ place in the list ‖ task id → nothing
//	due        seconds, 8 bytes big-endian ‖ task id → nothing
//	notices    16 bytes of the SHA-256 of a destination ‖ seconds, 8 bytes big-endian ‖ task id → destination
//	keys       SHA-256 of tenant, caller, Idempotency-Key → SHA-256 of the body ‖ task id
//	tokens     jti of a denial that was asked to be lifted → its expiry, in seconds
//	outbox     sequence, 8 bytes big-endian → record that is not in the log yet
//	signing    key id → Ed25519 key, as JSON
//	last       transaction → its number, if it was of a version that keeps all of these
//
// The package follows draft 1 of the AuthZEN Access Request and Approval
// Profile and knows no transport.
package approval
