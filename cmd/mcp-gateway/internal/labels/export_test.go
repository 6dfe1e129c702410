package labels

// Cached returns of how many callers the labels are in memory.
func (s *Store) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}
