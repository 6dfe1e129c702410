package decisionlog

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// The file of a pruned segment has the hashes of its nodes from blockLevel up. They are the stored
// hashes of a tree whose leaves are the blocks, in order and without gaps.

// prunedOffset returns the offset of a node's hash in the file of the pruned segment that begins at
// first.
func prunedOffset(first int64, level int, n int64) int64 {
	return (tlog.StoredHashIndex(level-blockLevel, n) - tlog.StoredHashCount(first>>blockLevel)) * tlog.HashSize
}

// prunedSize returns the size in bytes of the file for the pruned entries [first, until).
func prunedSize(first, until int64) int64 {
	return (tlog.StoredHashCount(until>>blockLevel) - tlog.StoredHashCount(first>>blockLevel)) * tlog.HashSize
}

// readPruned returns hashes of a pruned segment.
func (p *segmentReader) readPruned(indexes []int64) ([]tlog.Hash, error) {
	p.mu.RLock()
	path := p.path
	p.mu.RUnlock()
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		if level < blockLevel {
			return nil, fmt.Errorf("entries %d to %d: %w", n<<level, (n+1)<<level-1, ErrPruned)
		}
		if _, err := file.ReadAt(hashes[i][:], prunedOffset(p.first, level, n)); err != nil {
			return nil, damaged(n<<level, "has no stored hash: %v", err)
		}
	}
	return hashes, nil
}

// prunedParts returns the number of pruned segments.
func prunedParts(parts []*segmentReader) (n int) {
	for _, p := range parts {
		if p.pruned() {
			n++
		}
	}
	return n
}

// upperHashes returns the stored indexes of the hashes that remain of the entries [first, until),
// in the order of their file.
func upperHashes(first, until int64) []int64 {
	var indexes []int64
	for b := first >> blockLevel; b < until>>blockLevel; b++ {
		for level := 0; ; level++ {
			indexes = append(indexes, tlog.StoredHashIndex(blockLevel+level, b>>level))
			if b>>level&1 == 0 {
				break
			}
		}
	}
	return indexes
}

// addBlocks appends the blocks of a pruned segment, given its remaining hashes. These must be
// consistent with each other.
func (t *tree) addBlocks(hashes []tlog.Hash) error {
	for len(hashes) > 0 {
		at := t.size
		nodes := t.addBlock(hashes[0])
		if len(nodes) > len(hashes) || !slices.Equal(nodes, hashes[:len(nodes)]) {
			return damaged(at, "is in a segment whose hashes do not agree")
		}
		hashes = hashes[len(nodes):]
	}
	return nil
}

func joinHashes(hashes []tlog.Hash) []byte {
	var all []byte
	for _, hash := range hashes {
		all = append(all, hash[:]...)
	}
	return all
}
