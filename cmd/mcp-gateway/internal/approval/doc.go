// Package approval holds a call until a person has approved it.
//
// The law it keeps: what is carried out is what was approved, once, by policies
// that still say so. A denial that a person may lift becomes an access request
// at the PDP, bound to the digest of the exact arguments; the call is kept on
// disk before anyone is told. The same call of the same caller attaches to it,
// whenever it comes. On approval the PDP is asked again; then one of those who
// wait claims the call, and the bytes that were kept go to the server. A call
// that was claimed is never claimed again, whatever became of it: a crash leaves
// an outcome that is not known, and the next such call needs another approval.
//
// Where the question has several evaluations, each that was denied becomes an
// access request of its own, all of them at once. The call waits until all are
// approved and is over with the first that is not; what its client is told is the
// same all the while. Then all evaluations are asked again in one batch, so that
// one revision of the policies decides on them, each approval at its own
// evaluation. The PDP counts an approval as used when it decides on that, also
// where it denies another: asked again under the same handle it is the same use.
//
// What the caller's own client says never approves anything. It may go on
// waiting or withdraw; the approver is whom the PDP lets approve.
//
// Clients are told by the best way that they have: a page to open or a form
// (input_required of MCP 2026-07-28, an elicitation on the pending call before
// that), a task that they poll, or an error that says which task waits. A person
// sees one dialog for a call, however often the call comes. A call that still waits
// ends in that error before an SDK gives up, and attaches when it comes again.
//
// Several processes may use one store: a claim is one transaction, so that of all
// processes that resume a call, one carries it out. A record names the process
// that claimed it, and only the successor of that process ends it as unknown.
//
// On disk (bbolt):
//
//	calls    HANDLE → a call that waits or has ended, as JSON, sealed with the gateway's key
//	current  digest of caller and call → the HANDLE of the last such call
//
// The states of a call:
//
//	asking → waiting → claimed → done
//	            |         └────→ unknown     the gateway ended before the server answered
//	            └────→ refused               denied, expired, withdrawn, superseded
//
// A call that is asking is on disk, and the PDP may have its request or not: it
// is submitted again under the same key.
//
// What a call has beyond one evaluation and one approval is in the members batch
// and more of its JSON.
package approval
