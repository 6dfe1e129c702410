package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
)

// Bounds of the proofs that are remembered: of all callers, and of one.
const (
	maxProofs         = 100_000
	maxProofsOfCaller = maxProofs / 4
)

// Proofs remembers the proofs that were used while they are valid, so that none is
// valid twice, and makes the nonces of the next ones. The verifiers of a process share
// one. It is safe for concurrent use.
type Proofs struct {
	key *seal.Key // of this process alone

	mu        sync.Mutex
	used      map[int64]*usedProofs // by the minute in which they are not valid any more
	total     int
	forgotten int64 // the last minute whose proofs were forgotten
}

// usedProofs are proofs whose validity ends in the same minute.
type usedProofs struct {
	ids map[[16]byte]bool
	by  map[string]int // how many, by caller
}

// NewProofs returns Proofs for the verifiers of a process.
func NewProofs() *Proofs {
	secret := make([]byte, seal.KeySize)
	_, _ = rand.Read(secret) // it does not fail
	key, err := seal.New(secret)
	if err != nil {
		panic(err) // the key has the size of keys
	}
	return &Proofs{key: key, used: make(map[int64]*usedProofs)}
}

// use takes a proof. A proof that was taken before is [ErrProof].
func (u *Proofs) use(p *proof, caller *Caller, now time.Time) error {
	who := fmt.Sprintf("%q %q %q", caller.Tenant, caller.Subject.Type, caller.Subject.ID)
	sum := sha256.Sum256([]byte(p.thumbprint + " " + p.ID))
	id, end := [16]byte(sum[:16]), p.issued().Add(proofAge).Unix()/60+1
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forget(now.Unix() / 60)
	if end <= u.forgotten { // the clock was set back
		return fmt.Errorf("%w: it is older than proofs that were forgotten", ErrProof)
	}
	of := 0
	for _, minute := range u.used {
		if minute.ids[id] {
			return fmt.Errorf("%w: it was used before", ErrProof)
		}
		of += minute.by[who]
	}
	if u.total >= maxProofs || of >= maxProofsOfCaller {
		return fmt.Errorf("%w: %d are remembered, %d of this caller", ErrTooManyProofs, u.total, of)
	}
	if u.used[end] == nil {
		u.used[end] = &usedProofs{make(map[[16]byte]bool), make(map[string]int)}
	}
	u.used[end].ids[id] = true
	u.used[end].by[who]++
	u.total++
	return nil
}

// forget drops the proofs that are not valid any more. Minute is the present.
func (u *Proofs) forget(minute int64) {
	for end, gone := range u.used {
		if end < minute {
			u.total -= len(gone.ids)
			u.forgotten = max(u.forgotten, end)
			delete(u.used, end)
		}
	}
}

// A nonce is what the nonces of this process hold, sealed.
type nonce struct {
	Issued time.Time `json:"iat"`
}

const (
	sealNonce = "dpop nonce"
	nonceAge  = 5 * time.Minute
)

// nonce returns a nonce for the proofs of the next minutes. It is not good in another
// process, nor after a restart.
func (u *Proofs) nonce(now time.Time) string {
	text, err := u.key.Seal(sealNonce, nonce{now})
	if err != nil {
		panic(err) // a time has a JSON form
	}
	return text
}

// isCurrent reports whether a nonce is of this process and not too old.
func (u *Proofs) isCurrent(text string, now time.Time) bool {
	var n nonce
	return u.key.Open(sealNonce, text, &n) == nil && now.Sub(n.Issued).Abs() <= nonceAge
}
