package evaluation

// Install makes s what later requests are decided by. Its archive is in the
// log before the first of them is.
func (e *Engine) Install(s *Snapshot) error {
	all := &Snapshots{archive: s.archive, revision: s.revision, everyone: s}
	if err := e.keep(all); err != nil {
		return err
	}
	e.current.Store(all)
	return nil
}

// Snapshot returns what requests are decided by, or nil.
func (e *Engine) Snapshot() *Snapshot {
	if all := e.current.Load(); all != nil {
		return all.everyone
	}
	return nil
}
