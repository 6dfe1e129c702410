package capability

import (
	"fmt"
	"sync"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// generation is how long a generation of proofs takes new ones. A proof is valid for twice its window
// at most, so one that was taken stays known for longer than it is valid.
const generation = 2 * proofWindow

// takenProofs are the proofs that can no longer be taken. Check and take are one step. The zero value
// has none.
type takenProofs struct {
	maxAll, maxHolder int

	mu                sync.Mutex
	began             time.Time // of the current generation
	current, previous proofSet
}

// A proofSet is a generation of proofs.
type proofSet struct {
	idSet
	holders map[holder]int
}

func (s *proofSet) addOf(of holder, id proofID) {
	if s.holders == nil {
		s.holders = map[holder]int{}
	}
	s.add(id)
	s.holders[of]++
}

// turn forgets proofs that are no longer valid. The caller holds t.mu.
func (t *takenProofs) turn(now time.Time) {
	if now.Sub(t.began) <= generation {
		return
	}
	t.previous = t.current
	if now.Sub(t.began) > 2*generation {
		t.previous = proofSet{}
	}
	t.current, t.began = proofSet{}, now
}

// take takes a proof of a holder, with its timestamp. It returns why it cannot be taken, or "". The
// error is ErrTooManyProofs if there is no room for it. Now is called under the lock: nothing may
// forget a proof between the check of a timestamp and the take.
func (t *takenProofs) take(id proofID, of holder, timestamp time.Time, now func() time.Time) (authzen.CapabilityReason, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := now()
	t.turn(at)
	switch {
	case isStale(timestamp, at):
		return authzen.CapabilityProofStale, nil
	case t.current.has(id) || t.previous.has(id):
		return authzen.CapabilityReplayed, nil
	case t.current.size+t.previous.size >= t.maxAll:
		return "", fmt.Errorf("%w: %d of all holders", ErrTooManyProofs, t.maxAll)
	case t.current.holders[of]+t.previous.holders[of] >= t.maxHolder:
		return "", fmt.Errorf("%w: %d of the holder", ErrTooManyProofs, t.maxHolder)
	}
	t.current.addOf(of, id)
	return "", nil
}

// restore takes a proof that the log has, whatever the number of others.
func (t *takenProofs) restore(id proofID, of holder, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	if !t.current.has(id) && !t.previous.has(id) {
		t.current.addOf(of, id)
	}
}

// forget releases the memory of proofs that are no longer valid.
func (t *takenProofs) forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
}
