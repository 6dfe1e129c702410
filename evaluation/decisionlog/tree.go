package decisionlog

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// A Head is the size and root of the tree. It commits to every byte of the log.
type Head struct {
	Size int64     `json:"size"` // number of entries
	Root tlog.Hash `json:"root"` // root of the Merkle tree over the lines
}

func encodeHead(h Head) []byte {
	return append(key(h.Size), h.Root[:]...)
}

func decodeHead(b []byte) (Head, error) {
	var h Head
	if len(b) != 8+tlog.HashSize {
		return h, damaged(-1, "has no head")
	}
	size, err := index(b[:8])
	if err != nil {
		return h, damaged(-1, "has no valid head")
	}
	h.Size = size
	copy(h.Root[:], b[8:])
	return h, nil
}

// key returns the key of entry n.
func key(n int64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 8+tlog.HashSize), uint64(n))
}

// index is the inverse of [key].
func index(key []byte) (int64, error) {
	if len(key) != 8 || key[0] > 0x7f {
		return 0, damaged(-1, "has a key %x that is no index", key)
	}
	return int64(binary.BigEndian.Uint64(key)), nil
}

// A tree is the right edge of the Merkle tree over the first size lines: at each level the hash of
// the last complete node. The edge is sufficient to add leaves and to compute the root.
type tree struct {
	size int64
	edge [64]tlog.Hash // by level; valid where size has a one bit
}

// add appends a leaf and returns the hashes of the nodes that it completes, the leaf first.
func (t *tree) add(line []byte) []tlog.Hash {
	hashes, err := tlog.StoredHashes(t.size, line, t)
	if err != nil {
		panic(err) // t.ReadHashes never fails
	}
	top := len(hashes) - 1
	t.edge[top] = hashes[top]
	t.size++
	return hashes
}

// addBlock appends a block of leaves, given the hash of their node. It returns the hashes of the
// nodes that the block completes, its own first.
func (t *tree) addBlock(hash tlog.Hash) []tlog.Hash {
	hashes, level := []tlog.Hash{hash}, blockLevel
	for ; t.size>>level&1 == 1; level++ {
		hash = tlog.NodeHash(t.edge[level], hash)
		hashes = append(hashes, hash)
	}
	t.edge[level] = hash
	t.size += block
	return hashes
}

func (t *tree) head() Head {
	root, err := tlog.TreeHash(t.size, t)
	if err != nil {
		panic(err) // t.ReadHashes never fails
	}
	return Head{Size: t.size, Root: root}
}

// ReadHashes implements [tlog.HashReader] for the edge.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, _ := tlog.SplitStoredHashIndex(index)
		hashes[i] = t.edge[level]
	}
	return hashes, nil
}

// edgeIndexes returns the levels at which a tree of size leaves has a node on its edge, and the
// stored indexes of these nodes.
func edgeIndexes(size int64) (levels []int, indexes []int64) {
	for level := range 63 {
		if size>>level&1 == 1 {
			levels = append(levels, level)
			indexes = append(indexes, tlog.StoredHashIndex(level, size>>level-1))
		}
	}
	return levels, indexes
}

// extend appends the line that ends in rest. It returns the value to store under its index: the
// hashes, then the line.
func (t *tree) extend(rest []byte) []byte {
	hashed := hashBytes(t.size)
	value := make([]byte, hashed, hashed+len(`{"index":9223372036854775807,`)+len(rest))
	value = append(appendIndex(value, t.size), rest...)
	for i, hash := range t.add(value[hashed:]) {
		copy(value[i*tlog.HashSize:], hash[:])
	}
	return value
}

// split splits the value stored under index n.
func split(n int64, value []byte) (hashes, line []byte, err error) {
	hashed := hashBytes(n)
	if len(value) <= hashed {
		return nil, nil, damaged(n, "has no line")
	}
	return value[:hashed], value[hashed:], nil
}

// hashBytes returns the length of the hashes before line n, in bytes.
func hashBytes(n int64) int {
	return tlog.HashSize * (1 + bits.TrailingZeros64(uint64(n)+1))
}
