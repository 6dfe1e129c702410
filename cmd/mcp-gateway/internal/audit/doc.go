// Package audit records the fate of each call: refused, forwarded with an outcome,
// or forwarded with an unknown outcome.
//
// The law it keeps: a call is forwarded only after it is on disk that it will be,
// and what is on disk without an end has one that is unknown. An intent is
// written and synced first, its outcome when it is there; an intent that a
// restart finds without one becomes unknown, and is never taken for one that was
// not carried out. A trail that could not be written once is written no more, and
// so lets nothing through.
//
// What was decided, and by which policies, is in the decision log of the PDP: a
// record names its entries by their Decision-ID. Arguments are not kept, their
// digest is.
//
// A trail is a directory of segments, 00000001.jsonl and so on, of one [Record] a
// line. A record has the SHA-256 of the line before it, over segments, so that
// [Read] finds damage. The chain is not signed: it proves nothing against somebody
// who can write the files. A segment begins with a record of the intents that are
// open then.
package audit
