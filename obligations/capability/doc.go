// Package capability stores capabilities: that a holder may use tools for a time.
//
// # Guarantees
//
// A capability is not access. It is a fact that the service verifies and that policies may require.
// The engine decides on every request, by the current policies, what a capability allows, and it
// decided before who gets one. So this package knows no policies, and nothing in it can permit
// anything.
//
// The id of a capability is no secret. A capability is bound to the verified identity of its holder,
// which is the subject of a request, and to a session if it names one. To everybody else it does not
// exist. The holder need not present it: [Service.Find] finds the one that covers a request.
//
// A capability with a key is never found. Its holder presents it, and proves the possession of the key
// for exactly this call (see "Proofs").
//
// A transition is committed together with its record. Nobody learns of the transition before the
// record is in the decision log ([Config.Record]).
//
// # States
//
// A capability is pending until it is issued, refused or expires. An issued one is active until it
// expires, is exhausted or is revoked. Then it never changes, and a day later it is deleted, a revoked one not before its time is over. One pure
// function of record, event and time implements all transitions: [next] in state.go.
//
// # Tokens
//
// [Service.Token] returns the signed form of an active capability: a JWT of the type capability+jwt,
// with the thumbprint of the key and authorization details (RFC 9396). Servers that verify themselves
// read it. To the service it is another name of the capability: the record decides.
//
// # Coverage
//
// A request is about a tool SERVER:TOOL (see authzen.EvaluationRequest.Tool). A capability names
// tools, all tools of a server (SERVER:*), or all tools (*). It may demand that arguments of the call
// have given values, or satisfy a JSON Schema. If it does and the request has no context.arguments, it
// does not cover the request. Values are equal if their canonical forms (RFC 8785) are, and integers
// are compared digit by digit.
//
// # Chains
//
// The holder of a capability may hand it on, four times at most ([Service.HandOn]). What was handed on
// is a record of its own that names its parent. It covers a request only if each capability before it
// does, now, so that it is never larger and ends with them. A use of it is a use of each.
//
// # Uses
//
// A use is taken in memory. Its durable record is the log entry of the decision that used it, because
// no decision is answered before its entry is in the log. After a start, [Open] reads these entries
// again. So a use that was answered stays taken, and one that was not answered was never used. To read
// only the end of the log, the service keeps the number of uses up to an index of the log.
//
// A repetition of a call takes no second use: the same request id, tool and arguments within a minute.
//
// # Proofs
//
// A proof is a signature with the holder's key over tool, digest of the arguments, capability, time and
// nonce. It holds for a minute before and after its timestamp, and once. The proofs that were taken are
// in memory, in two generations of two minutes each. Their durable record is the log, as for uses: the
// entry of the decision has the first 16 bytes of SHA-256(jkt ‖ nonce), whether it permits or denies.
// Snapshots keep the size of the log at their times. A start reads the log from the latest such mark
// that is older than any proof that can still be presented.
//
// The time never runs backwards. It is at least that of the last log entry at the start, and that of
// every earlier request.
//
// # On disk
//
// The service uses one bbolt file, and has all capabilities in memory:
//
//	capabilities  capability id → record, as JSON
//	listed        scope ‖ 0 ‖ state ‖ 0 ‖ nanoseconds, 8 bytes big-endian ‖ capability id → nothing;
//	              a scope is a tenant, or * for all, and may be followed by : and a digest of the holder
//	due           seconds, 8 bytes big-endian ‖ capability id → nothing
//	uses          capability id → uses in the log before an index, as JSON
//	log           next → that index, 8 bytes big-endian; time → the time of its snapshot;
//	              marks → sizes of the log at the times of recent snapshots, as JSON
//	outbox        see package outbox
package capability
