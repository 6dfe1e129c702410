package boltfile

import "time"

// SetWait shortens how long transactions wait.
func (f *File) SetWait(d time.Duration) { f.wait = d }
