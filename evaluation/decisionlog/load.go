package decisionlog

import "errors"

// setSkipPageCheck sets for all sealed segments whether reads skip the page check.
func (r *Reader) setSkipPageCheck(skip bool) error {
	var errs []error
	parts := *r.segments.Load()
	for _, p := range parts[:len(parts)-1] {
		errs = append(errs, p.setSkipPageCheck(skip))
	}
	return errors.Join(errs...)
}

// load reads the heads of all segments and rebuilds the right edge of the tree. Each segment must
// continue the one before, and the edge must match the last head. load skips the page check; its
// caller restores it.
func (r *Reader) load() (*tree, error) {
	if err := r.setSkipPageCheck(true); err != nil {
		return nil, err
	}
	parts := *r.segments.Load()
	e, err := parts[len(parts)-1].meta()
	if err != nil {
		return nil, err
	}
	if err := covers(e.head, e.count); err != nil {
		return nil, err
	}
	extents, err := r.chain(parts, e)
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		p.created = extents[i].created
	}
	t, err := r.edge(e.head.Size)
	if err != nil {
		return nil, err
	}
	if t.head() != e.head {
		return nil, damaged(-1, "does not have the root of its head")
	}
	r.head.Store(&e.head)
	r.ids.start = e.head.Size
	return t, nil
}

// edge reads the right edge of the tree over the first size entries.
func (r *Reader) edge(size int64) (*tree, error) {
	t := &tree{size: size}
	levels, indexes := edgeIndexes(size)
	hashes, err := r.ReadHashes(indexes)
	if err != nil {
		return nil, err
	}
	for i, level := range levels {
		t.edge[level] = hashes[i]
	}
	return t, nil
}

// chain returns the metadata of the segments and checks that each ends where the next begins. It
// knows the metadata of the last.
func (r *Reader) chain(parts []*segmentReader, last segmentMeta) ([]segmentMeta, error) {
	extents := make([]segmentMeta, len(parts))
	extents[len(parts)-1] = last
	for i := len(parts) - 2; i >= 0; i-- {
		next := extents[i+1].base
		e, err := parts[i].meta()
		if errors.Is(err, ErrPruned) {
			e, err = r.remains(parts[i], next.Size)
		}
		if err == nil {
			err = covers(e.head, e.count)
		}
		if err != nil {
			return nil, err
		}
		if e.head != next {
			return nil, damaged(e.head.Size, "does not continue the segment before, which ends at %v", e.head)
		}
		extents[i] = e
	}
	return extents, nil
}

// remains returns the metadata of a pruned segment that ends before until, computed from its
// remaining hashes.
func (r *Reader) remains(p *segmentReader, until int64) (e segmentMeta, err error) {
	size, err := p.size()
	if err != nil {
		return e, err
	}
	if want := prunedSize(p.first, until); size != want {
		return e, damaged(p.first, "is pruned, and its hashes are cut off: %s has %d bytes, not %d", p.path, size, want)
	}
	base, err := r.edge(p.first)
	if err != nil {
		return e, err
	}
	t, err := r.edge(until)
	if err != nil {
		return e, err
	}
	return segmentMeta{base: base.head(), head: t.head(), count: until}, nil
}

// covers checks that the size of the head equals the number of entries.
func covers(head Head, count int64) error {
	switch {
	case count < head.Size:
		return damaged(count, "is missing")
	case count > head.Size:
		return damaged(head.Size, "is not under the head")
	}
	return nil
}
