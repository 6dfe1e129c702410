// Package decisionlog is the append-only log of what the service answered, on
// disk before it was answered.
//
// # The law
//
// An entry that [Log.Append] has accepted is never lost, changed, moved or
// left out without that being provable. Accepted means written and flushed to
// the disk ([Strict]), or at most 100 milliseconds or 512 entries away from
// that ([Batched]). An entry that cannot be written is refused, and who is
// refused must not answer.
//
// # The tree
//
// The entries are the leaves of a Merkle tree in the sense of RFC 6962. Leaf n
// is the line of entry n: one JSON object in UTF-8 that begins {"index":n, and
// has no line break. The bytes that are stored, hashed and exported are the
// same; nothing is ever encoded a second time. A [Head], the size of the tree
// and its root, therefore stands for every byte of the log: nothing else is
// needed to check what [Reader.Export] wrote of all of it. The
// nodes are numbered and proofs are made as golang.org/x/mod/sumdb/tlog does;
// a [Reader] is its HashReader.
//
// Whoever can write the files can also write a consistent log that is another
// or a shorter one. Only a head that was kept elsewhere tells the two apart: a
// [Checkpoint], which the log signs. The last that was published is at HEAD,
// and the log is held to it whenever it is opened. That serves against
// accidents and backups; against whoever has the key, a copy on another host
// does.
//
// # On disk
//
//	DIR/log/<first>.db                 a segment, named by its first index in 20 digits
//	DIR/log/<first>.pruned             what is left of a segment that was removed
//	DIR/log/journal.0, journal.1       entries that may not be in a segment yet
//	DIR/checkpoint/HEAD                the last checkpoint
//	DIR/checkpoint/key, key.pub        the key that signs, and all public keys there were
//	DIR/checkpoint/key.change          the checkpoint that the last key signed with its successor
//	DIR/mask.key                       the key of the masks in requests
//	DIR/floor                          the lowest version that a policy store may have
//	DIR/archive/blobs/<sha256>         the files of policy revisions
//	DIR/archive/revisions/<sha256>     the manifest of a revision
//
// A segment is a bbolt file of 4,096-byte pages with two buckets:
//
//	entries    index, 8 bytes big-endian → hashes ‖ line
//	meta       "head"    → size, 8 bytes big-endian ‖ root, 32 bytes
//	           "base"    → the same of the log before the segment
//	           "created" → when it was begun, as in RFC 3339
//	           "origin"  → the name under which the log is signed
//	           "format"  → "decisionlog 1"
//
// The hashes before line n are those of the nodes that leaf n completes, the
// leaf first: one, and one more for every trailing one bit of n. Entry n and
// all that follows from it are thus one put, and a transaction is its entries
// and the head. The committer reads nothing to write, because it keeps the
// right edge of the tree in memory.
//
// A transaction is several writes and two flushes to a file that grows. A
// strict log therefore has an entry in its journal first, where it takes one
// write and one flush of bytes that were there before, together with all that
// have queued meanwhile. A goroutine of its own settles entries: it commits
// some fifty milliseconds of them to the segment at once, and at once when
// somebody reads. A record of the journal is
//
//	"dlj1" ‖ CRC-32C of what follows ‖ first index, 8 bytes ‖ length, 4 bytes ‖ lines ‖ "#" ‖ first index in letters
//
// with numbers big-endian and a line feed behind each line. What has settled
// is written over. So of the records from the beginning of a file those count
// that are whole and continue each other, and of their lines those behind the
// head of the last segment. A record that is whole and does not have its
// checksum is no end but damage: somebody may have been told of its entries. The
// two are told apart by sectors, which a write that broke off leaves as they
// were, and by the last line. The entries are settled when the log is opened again;
// until then who reads the log reads a copy of that segment with them in it. A
// log that was closed has no journal, unless the disk was full.
//
// [Reader.Lookup] finds an entry by its Decision-ID. An open log knows between
// which times the ids of 1,024 entries in a row are, of all that it has
// committed; what was there before is read back once, as far as an id's time
// asks for.
//
// Only the last segment is written to. Once it is large or old enough, the
// next begins, with a multiple of 256 entries: so every node over fewer has
// all its leaves in one segment. What [Log.Prune] leaves of a segment are the
// hashes over 256 entries or more, in the order in which they were completed.
// They are all that a proof about entries elsewhere needs, and an entry of
// kind "pruned" says of which entries they are.
//
// The free list is not stored, and the file is mapped at the largest size it
// may reach: a reader neither makes the file grow nor stops a commit, however
// long it takes. bbolt trusts the pages it is given and takes the process down
// over damaged ones, so they are read and checked before bbolt sees them.
//
// A manifest has one line "<sha256 in hex>  <path>\n" for each file of the
// revision, in the order of the paths. Its own SHA-256 names the revision. A
// blob is stored once however many revisions have it, and a manifest only
// after all of its blobs.
//
// # Errors
//
// A segment that is missing, or does not continue the one before, is an
// [IntegrityError] when the log is opened. While it is open, the committer
// looks every two seconds whether the files still are where they were, and
// fails if not.
//
// The outcome of a commit is one of three. It succeeded. Or nothing was
// written, because the disk or the segment is full: [ErrUnavailable], and the
// next entry is tried again; what is in the journal and cannot be settled is
// tried again and again, and no more is accepted before. Or nobody knows, because a flush failed:
// [ErrFailed], for good; the process has to end, and the log is what the file
// says when it is opened again.
package decisionlog
