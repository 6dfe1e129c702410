// Package approval is the Access Request Service: it stores access requests and approvals.
//
// # Guarantees
//
// An approval is not access. It is a fact that the service verifies and that policies may require.
// The engine decides on every request, by the current policies, what an approval allows. A decision
// of the engine also determines who may approve ([Config.CanApprove]). So this package knows no
// policies, and nothing in it can permit anything.
//
// A transition is committed together with its record. Nobody learns of the transition before the
// record is in the decision log ([Config.Record]). A task is decided once: of concurrent votes that
// would decide it, one does.
//
// # States
//
// An Access Request has one item, or several ("bulk"). An item is pending until it is approved,
// denied, cancelled or expired. Then it never changes. An approved item has an approval, which is
// valid until it expires, is used up, is revoked or is superseded. One pure function of request,
// event and time implements all transitions: [next] in state.go.
//
// A request without a decision expires. The service keeps its task for a day after the last time
// that the result can matter, so that the PEP can read how it ended. Until then it counts against
// the tenant's storage quota.
//
// A PEP may ask for a callback. The service calls it at least once when the request is decided, if
// it is reachable. The callback has the task's status and never the approval. The task itself is
// authoritative.
//
// People are notified of requests that they may decide, by the same policies ([Config.Recipients]). Each
// event is announced once for a request, with a message to each recipient. The messages are part of the
// stored request until they are delivered, so that a crash loses none. One may be delivered twice.
//
// # Binding of an approval
//
// An approval is bound to the tenant, the caller, the subject, the resource, the action and members
// of the context. Subject, resource and action include their properties, and the subject its actor
// chain. The template names the bound members of the context. Without such a list all are bound,
// except the service's own (see authzen.UnboundContext).
//
// Values are equal if their canonical forms (RFC 8785) are. Integers are compared digit by digit,
// because two integers may round to the same float64. A token and an item have only a digest of the
// context.
//
// # On disk
//
// The service uses one bbolt file. All buckets can be derived from tasks, except tasks, tokens,
// signing, history, changes, outbox and last:
//
//	tasks      task id → request, as JSON
//	approvals  approval id → task id ‖ 0 ‖ item
//	pending    tenant ‖ 0 ‖ SHA-256 of the caller ‖ task id → nothing
//	kept       all, or tenant ‖ 0 ‖ tenant's name → bytes of stored requests
//	listed     tenant, or * for all ‖ 0 ‖ status ‖ 0 ‖ position in the list ‖ task id → nothing
//	standing   tenant, or * for all ‖ 0 ‖ end in seconds, 8 bytes big-endian ‖ approval id → nothing
//	history    day, 4 bytes big-endian ‖ 16 bytes of the SHA-256 of tenant, subject, action, resource → approved, denied
//	changes    tenant, or * for all ‖ 0 → number of changes of its requests, 8 bytes big-endian
//	due        seconds, 8 bytes big-endian ‖ task id → nothing
//	notices    16 bytes of the SHA-256 of a destination ‖ seconds, 8 bytes big-endian ‖ task id → destination
//	messages   16 bytes of the SHA-256 of a destination ‖ seconds, 8 bytes big-endian ‖ event ‖ 0 ‖ task id → destination
//	announcements  seconds, 8 bytes big-endian ‖ task id → nothing
//	keys       SHA-256 of tenant, caller, Idempotency-Key → SHA-256 of the body ‖ task id
//	tokens     jti of a binding token that was used → its expiry, in seconds
//	outbox     sequence, 8 bytes big-endian → record that is not in the log yet
//	signing    key id → Ed25519 key, as JSON
//	last       transaction → its number, if written by a version that keeps all of these
//
// The package implements draft 1 of the AuthZEN Access Request and Approval Profile. It is
// independent of the transport.
package approval
