package decisionlog

// ReadArchive is [Reader.ReadArchive] for the log in dir, which may be in use.
func ReadArchive(dir, revision string) (map[string][]byte, error) {
	return (&Reader{dir: dir}).ReadArchive(revision)
}
