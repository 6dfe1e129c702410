// Package policystore reads policy stores from directories and watches them for
// changes.
//
// # Invariant
//
// A read returns one state of the whole store or an error, never a part. A file
// that is rewritten during the read can be truncated and still be valid Cedar,
// and a missing forbid permits. So the package lists the files before and after
// the read, by size, times and inode, and retries until both lists agree. It does
// not interpret a state: the engine reports whether it compiles.
//
// Reads stay below the directory, whose path is resolved again each time. A
// symbolic link may lead anywhere inside, as Kubernetes' ..data does, and nowhere
// else; an absolute link counts as outside. The package never opens a file that
// is not regular.
//
// # On disk
//
//	DIR/**/*.cedar, schema.cedarschema, entities.json, …  the files of [evaluation.Counts]
//	DIR/access/<server>.json                              access documents
//	DIR/tenants/<tenant>/…                                the same files again, for one tenant
//	DIR/manifest.json                                     optional: see [Manifest]
//	DIR/manifest.json.sig                                 its signature: see [Config]
//
// Policies are read from every folder, access documents from access/ itself, and the
// other files only from the root and from a tenant's folder. A name that begins with a dot never counts: it is an
// editor's lock, a version control system's directory or Kubernetes' bookkeeping.
// Nor does anything in tests/.
//
// A name that resembles a relevant one but is not read is an error, because its
// policies would silently have no effect. Examples are a misspelled file name, a
// schema or settings in a folder of policies, policies in access/, entities/ or
// tenants/ itself, a directory in tenants/ that is not a valid tenant name, and a
// folder tenants outside the root. In a tenant's folder the error blocks changes
// of that tenant only: see [State]. The store may contain any other files.
//
// The limits are 64 MiB for a file, 256 MiB and 10,000 files for the root, and
// folders 32 deep. A tenant has 64 MiB of files and 2,000 names of any kind in the
// folders that are searched; no more are listed. All tenants together have 1 GiB:
// above that the largest are omitted. A store without files is [ErrEmpty] unless
// its manifest allows it, because a directory looks like that during replacement.
//
// # Tenants
//
// Whatever prevents reading something below tenants/T is the fault of T alone: a
// link out of the store, a pipe, a limit, a name that is not UTF-8 or contains a
// line break, a file that is unreadable or keeps changing. The state then has no
// files of T, and the engine keeps T's last good ones, if any. A tenant's folder
// without a file that is read is such a fault as well. A folder tenants/ without
// tenants is a fault of the root, because the root alone would answer requests
// meant for a tenant's policies. To remove a tenant, remove its folder.
//
// With a manifest, or if one is required, such a fault affects the whole store:
// the manifest lists the files of all.
//
// # Changing a store
//
// A change of one file is atomic when the file is renamed into place, as editors
// do. A change of many files is atomic when they appear at once: by swapping a
// symbolic link on the path to the directory or inside it (a ConfigMap, a git
// worktree), or by renaming the directory. If files are copied over a store one
// by one, a read can come between two of them. If a file is written in place
// slowly, a read can come in the middle of it. File times cannot detect either;
// only a manifest can. With a manifest, files that differ from it in anything are
// not a state of the store.
//
// A manifest defines which files belong together, and a signature proves its
// author. Its version defines the order: raise it with every change, also to go
// back. A version that is lower than the last one applied, or than
// Config.MinVersion, is [ErrRollback].
//
// # Watching
//
// [Store.Watch] passes on each new content once, valid or not, and does nothing
// while the store is unchanged. File system events are only hints: a lost or
// wrong one costs time and nothing else. The package acts on a hint when there
// has been none for 100 ms and no file is younger than that, but at most 1 s after
// the first. Every Config.Poll is a hint as well, so changes on a file system
// without events, like NFS, are found at the next poll.
//
// On a hint the package lists the files. It reads them in three cases: the list
// differs from that of the last read; that list was made within two seconds of a
// change, so a later change may not show in the file times; or it is the
// twentieth poll, for file systems with unreliable times.
//
// A store that cannot be read changes nothing. The error is reported once and
// the watch continues. [Store.Reload] checks at once and returns the result.
package policystore
