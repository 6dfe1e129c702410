package pdp

import (
	"errors"
	"io"
	"sync"
)

// errMemory means that the budget has no room for a body or an answer.
var errMemory = errors.New("too many bodies are being read: ask again")

// A memoryBudget bounds the bytes of request bodies and large answers in memory,
// over all connections and streams. An owner may reserve more while it holds no
// more than what is free (dynamic thresholds, as in switches with shared buffers):
// one owner alone gets at most half, and the next always gets some.
type memoryBudget struct {
	limit int64

	mu   sync.Mutex
	used int64
	held map[string]int64 // by tenant or, where a request names none, by caller
}

func newMemoryBudget(most int64) *memoryBudget {
	return &memoryBudget{limit: most, held: map[string]int64{}}
}

// reserve reserves n bytes for an owner and reports whether the budget had room.
func (m *memoryBudget) reserve(who string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[who]+n > m.limit-m.used-n {
		return false
	}
	m.used += n
	m.held[who] += n
	return true
}

// release returns n bytes of an owner to the budget.
func (m *memoryBudget) release(who string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.held[who] -= n; m.held[who] == 0 {
		delete(m.held, who)
	}
}

// load returns the number of reserved bytes.
func (m *memoryBudget) load() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// A reservation is the part of the budget that one request holds.
type reservation struct {
	budget *memoryBudget // nil for no bound
	owner  string
	bytes  int64
}

// requestBytes are reserved for each request in addition to a larger body: for its
// stream, headers and goroutine.
const requestBytes = 8 << 10

// reserve adds n bytes to the reservation.
func (r *reservation) reserve(n int64) error {
	if r.budget != nil && !r.budget.reserve(r.owner, n) {
		return errMemory
	}
	r.bytes += n
	return nil
}

// release returns n bytes of the reservation.
func (r *reservation) release(n int64) {
	if r.budget != nil && n > 0 {
		r.budget.release(r.owner, n)
	}
	r.bytes -= n
}

// read reads a body, of which there are expected bytes if that is known, into
// room that grows with what has come: a length that is only announced takes none.
func (r *reservation) read(body io.Reader, expected int64, room []byte) ([]byte, error) {
	for {
		if len(room) == cap(room) {
			larger, err := r.enlarge(room, expected)
			if err != nil {
				return nil, err
			}
			room = larger
		}
		n, err := body.Read(room[len(room):cap(room)])
		room = room[:len(room)+n]
		switch {
		case err == io.EOF:
			return room, nil
		case err != nil:
			return nil, err
		}
	}
}

// enlarge returns a copy of full room with more of it.
func (r *reservation) enlarge(full []byte, expected int64) ([]byte, error) {
	size := max(2*int64(cap(full)), keptBuffer)
	if expected > int64(cap(full)) {
		size = min(size, expected+1) // and one, to see the end
	}
	if err := r.reserve(size); err != nil {
		return nil, err
	}
	larger := append(make([]byte, 0, size), full...)
	if cap(full) > keptBuffer {
		r.release(int64(cap(full)))
	}
	return larger, nil
}
