package snapshot

// A place is the position of an entity in a file.
type place struct {
	file   string
	offset int64
}
