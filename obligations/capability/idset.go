package capability

import (
	"encoding/binary"
	"math/bits"
)

// An idSet is a set of ids of proofs: a hash table with open addressing and linear probing. It is at
// least half full, so it needs less memory than a map. An id is a digest, so it is its own hash. The
// zero value is empty.
type idSet struct {
	slots []proofID // the zero id is an empty slot
	size  int
}

// find returns the slot of an id, or the empty one where it belongs.
func (s *idSet) find(id proofID) *proofID {
	n := uint64(len(s.slots))
	at, _ := bits.Mul64(binary.BigEndian.Uint64(id[:]), n)
	for s.slots[at] != id && s.slots[at] != (proofID{}) {
		if at++; at == n {
			at = 0
		}
	}
	return &s.slots[at]
}

func (s *idSet) has(id proofID) bool { return len(s.slots) > 0 && *s.find(id) == id }

// add adds an id that the set does not have.
func (s *idSet) add(id proofID) {
	if (s.size+1)*5 > len(s.slots)*4 {
		s.grow()
	}
	*s.find(id) = id
	s.size++
}

func (s *idSet) grow() {
	old := s.slots
	s.slots = make([]proofID, len(old)*3/2+64)
	for _, id := range old {
		if id != (proofID{}) {
			*s.find(id) = id
		}
	}
}
