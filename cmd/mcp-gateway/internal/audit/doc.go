// Package audit records the fate of each call: refused, forwarded with an outcome,
// or forwarded with an unknown outcome.
//
// # The law
//
// A call is forwarded only after the trail has it on disk. A forwarded call
// without an outcome has an unknown one: it may have had its effect, and nobody
// repeats it. A trail that cannot be written lets no call through.
//
// An outcome may reach the disk a few milliseconds after the client has its answer
// ([Trail.DoneLater]). A crash in between makes it unknown.
//
// # The entries
//
// A trail is a log of package decisionlog. The commands that verify, query,
// export and sign a decision log therefore work on a trail. Its entries have
// these kinds, and an [Entry] each as their request:
//
//	gateway.call      the call will be forwarded
//	gateway.outcome   how a forwarded call ended; member call is the id of its gateway.call
//	gateway.refused   the call was not forwarded, and why
//	gateway.pending   ids of all forwarded calls without an outcome
//
// An entry about a server in observe mode has the member observed. The gateway.call of
// a call that enforcement would refuse then has the reason, and what the policies say.
//
// The decision log of the PDP says what was decided, and by which policies. An
// entry names the decisions by their Decision-ID. The trail has the digest of the
// arguments, and not the arguments.
//
// # Restarts
//
// A trail writes gateway.pending when it is opened and after every 4,096 other
// entries, when no other entry is being written. What was forwarded without an
// outcome thus follows from the last gateway.pending and the entries behind it:
// [Open] reads no more than these, however long the trail is.
package audit
