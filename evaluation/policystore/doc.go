// Package policystore reads policy stores from directories and follows them as
// they change.
//
// # The law
//
// What is read is one state of the whole store or an error, never a part. A
// file that is rewritten while it is read can be cut off and still be valid
// Cedar, and a forbid that is left out permits, so the files are listed before
// and after they are read, by size, times and inode, and read again until both
// lists agree. What a state means is not looked at here: the engine says
// whether it compiles.
//
// Reading stays below the directory, whose path is resolved anew each time. A
// symbolic link may lead anywhere inside, as Kubernetes' ..data does, and
// nowhere else; an absolute one leads outside. What is not a regular file is
// never opened.
//
// # On disk
//
//	DIR/**/*.cedar, schema.cedarschema, entities.json, …  the files of [evaluation.Counts]
//	DIR/tenants/<tenant>/…                                the same files again, for one tenant
//	DIR/manifest.json                                     optional: see [Manifest]
//	DIR/manifest.json.sig                                 its signature: see [Config]
//
// Policies are read from every folder, the other files only from the root and
// from a tenant's folder. A name that begins with a dot never counts: it is an
// editor's lock, a version control system's directory or Kubernetes' bookkeeping.
// Nor does anything in tests/.
//
// What looks as if it counted and does not is an error, because it would silently
// decide nothing: another spelling or case of a file's name, a schema or settings
// in a folder of policies, policies in access/, entities/ or tenants/ itself, a
// directory in tenants/ whose name cannot be a tenant's, and a folder tenants
// anywhere but in the root. In the folder of a tenant it keeps that tenant from
// changing, and no other: see [State]. All else may lie beside what counts.
//
// A file has at most 64 MiB, all files of the root together 256 MiB, and there are
// at most 10,000. A tenant has 64 MiB of files, and 2,000 names of any kind in the
// folders that are looked into; no more of them is listed. All tenants together have
// 1 GiB: above that the largest are left out. Folders nest 32 deep. A store with no
// file at all is [ErrEmpty] unless its manifest allows it, because that is what a
// directory looks like while it is being replaced.
//
// # Tenants
//
// What keeps something below tenants/T from being read is the fault of T alone: a
// link out of the store, a pipe, a bound, a name that is not UTF-8 or has two lines,
// a file that may not be read or never keeps still. None of the files of T is in the
// state then, and the engine goes on with T's last good ones, or has none. A folder
// of a tenant without a file that is read is such a fault as well, and tenants/
// without a tenant is one of the root: the root alone would answer requests that a
// tenant's policies were meant for. To remove a tenant, remove its folder.
//
// With a manifest, or where there has to be one, such a fault is the whole store's:
// the manifest says what all files are.
//
// # Changing a store
//
// A change of one file is taken over whole when the file is renamed into place,
// as editors do. So is a change of many when they appear at once: by swapping a
// symbolic link on the way to the directory or inside it (a ConfigMap, a git
// worktree), or by renaming the directory. Whoever copies files over a store
// one by one can be read between two of them, and whoever writes a file in
// place for longer than it takes to notice, in the middle of it. The times of
// the files cannot tell; only a manifest can. With one, a set of files that
// differs from it in anything is not a state of the store.
//
// A manifest says what belongs together, a signed one also who says so. Its
// version says what is newer: raise it with every change, also to go back. A
// version that is lower than the last one applied, or than Config.MinVersion,
// is [ErrRollback].
//
// # Watching
//
// [Store.Watch] hands over each new content once, good or bad, and keeps quiet
// while nothing changes. What the file system reports are hints to look, no
// more: a lost or wrong one costs time and nothing else. A hint is acted upon
// when there has been none for 100 ms, and no file is younger than that, but at
// most 1 s after the first. Every Config.Poll is a hint as well, so a file
// system that reports nothing, like NFS, is followed too, that much later.
//
// To look is to list the files. They are read if the list differs from that of
// the last reading; if it was made within two seconds of a change, which may be
// too soon for the next one to show in a file's times; and with every
// twentieth poll regardless, for file systems whose times do not tell.
//
// A store that cannot be read, for whatever reason, changes nothing: the reason
// is reported once and looking goes on. [Store.Reload] looks at once and says
// how that went.
package policystore
