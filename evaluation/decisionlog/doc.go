// Package decisionlog is the append-only log of the service's answers. An answer is recorded before
// it is sent.
//
// # Guarantee
//
// Nobody can lose, change, move or omit an entry that [Log.Append] accepted without leaving proof.
// An accepted entry is on disk ([Strict]), or will be after at most 100 milliseconds or 512 further
// entries ([Batched]). If the log refuses an entry, the caller must not answer. [Log.AppendLater] is
// for entries that no answer depends on.
//
// # The tree
//
// The entries are the leaves of a Merkle tree as defined by RFC 6962. Leaf n is the line of entry
// n: one JSON object in UTF-8 without a line break that begins {"index":n. The log stores, hashes
// and exports the same bytes and never encodes an entry twice. A [Head], the size and root of the
// tree, therefore commits to every byte of the log. The head alone is enough to check a complete
// [Reader.Export]. The numbering of nodes and the proofs follow golang.org/x/mod/sumdb/tlog. A
// [Reader] is its HashReader.
//
// Anyone who can write the files can also write a consistent log with other entries, or a shorter
// one. Only a head stored elsewhere reveals that: a [Checkpoint], which the log signs. The last
// published checkpoint is in the file HEAD. Opening the log checks that the log contains everything
// under it. That protects against accidents and restored backups. A copy of the checkpoint on
// another host also protects against an attacker who has the key.
//
// # On disk
//
//	DIR/log/<first>.db                 a segment, named by its first index in 20 digits
//	DIR/log/<first>.pruned             the hashes of a segment that was removed
//	DIR/log/journal.0, journal.1       entries that may not be in a segment yet
//	DIR/checkpoint/HEAD                the last checkpoint
//	DIR/checkpoint/key, key.pub        the signing key, and all public keys of the log
//	DIR/checkpoint/key.change          the checkpoint that the last key signed with its successor
//	DIR/mask.key                       the key for masks in requests
//	DIR/floor                          the lowest version that a policy store may have
//	DIR/archive/blobs/<sha256>         the files of policy revisions
//	DIR/archive/revisions/<sha256>     the manifest of a revision
//
// A segment is a bbolt file of 4,096-byte pages with two buckets:
//
//	entries    index, 8 bytes big-endian → hashes ‖ line
//	meta       "head"    → size, 8 bytes big-endian ‖ root, 32 bytes
//	           "base"    → the head before the first entry of the segment, in the same form
//	           "created" → time of creation, RFC 3339
//	           "origin"  → the name under which the log is signed
//	           "format"  → "decisionlog 1"
//
// The hashes before line n are those of the nodes that leaf n completes, the leaf first: one, and
// one more for every trailing one bit of n. So an entry with its hashes is a single put, and a
// transaction consists of its entries and the head. The committer keeps the right edge of the tree
// in memory and reads nothing to write.
//
// A transaction needs several writes and two flushes of a growing file. A strict log therefore
// first writes all queued entries to its journal, with one write and one flush of existing bytes.
// Another goroutine flushes entries to the segment: it commits the entries of about a quarter of a
// second in one transaction, or earlier if a reader needs them. A record of the journal is
//
//	"dlj1" ‖ CRC-32C of what follows ‖ first index, 8 bytes ‖ length, 4 bytes ‖ lines ‖ "#" ‖ first index in letters
//
// with big-endian numbers and a line feed after each line. The journal overwrites records whose
// entries are in the segment. So the valid records are those at the beginning of a file that are
// complete and consecutive. Of these, only lines above the head of the last segment count. A
// complete record with a wrong checksum does not end the journal, it is damage: its entries may
// have been acknowledged. An interrupted write differs from damage by its sectors, which keep their
// old content, and by its missing trailer. Opening the log flushes the entries of the journal to
// the segment. Until then readers use a copy of the last segment that includes these entries. A log
// that was closed has no journal, unless the disk was full.
//
// [Reader.Lookup] finds an entry by its Decision-ID. An open log keeps an index: for each 1,024
// consecutive entries the range of times in their ids. It reads the index of older entries once, as
// far back as the time of an id requires.
//
// Only the last segment is written to. When it is large or old enough, the log starts a new one at
// a multiple of 256 entries. So every node over fewer entries has all its leaves in one segment.
// For a pruned segment, [Log.Prune] keeps the hashes of nodes over 256 entries or more, in the
// order of their completion. Proofs about other entries need no more. An entry of kind "pruned"
// names the removed entries.
//
// bbolt does not store its free list, and the file is mapped at its maximum size. A reader of any
// duration therefore neither makes the file grow nor blocks a commit. bbolt trusts its pages and
// crashes the process on damaged ones. So the log checks all pages before bbolt reads them.
//
// A manifest has one line "<sha256 in hex> <path>\n" for each file of the revision, sorted by path.
// The SHA-256 of the manifest names the revision. A blob is stored once for all revisions that
// contain it. A manifest is written after all its blobs.
//
// # Errors
//
// When the log is opened, a missing segment, or one that does not continue the one before, is an
// [IntegrityError]. While the log is open, the committer checks every two seconds that the files
// are still at their paths, and fails if not.
//
// A commit has one of three outcomes:
//
//   - Success.
//   - Nothing was written, because the disk or the segment is full: [ErrUnavailable].
//
// The log tries again with the next entry. It retries entries of the journal until they are in the
// segment, and accepts no others before that.
//   - Unknown, because a flush failed: [ErrFailed]. This state is permanent and the
//
// process must end. The content of the file counts when the log is opened again.
package decisionlog
