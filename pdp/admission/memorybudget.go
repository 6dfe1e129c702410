package admission

import (
	"errors"
	"io"
	"sync"
)

// ErrMemory means that the budget has too little memory left for a body or an
// answer.
var ErrMemory = errors.New("too many bodies are being read: retry later")

// A MemoryBudget bounds the bytes of request bodies and large answers in memory,
// over all connections and streams. An owner may reserve more only while it holds
// no more than the free part (dynamic thresholds, as in switches with shared
// buffers). A single owner gets at most half, and the next owner always gets
// some.
type MemoryBudget struct {
	limit int64

	mu   sync.Mutex
	used int64
	held map[string]int64 // by tenant or, if a request names none, by caller
}

// NewMemoryBudget returns a budget of most bytes.
func NewMemoryBudget(most int64) *MemoryBudget {
	return &MemoryBudget{limit: most, held: map[string]int64{}}
}

// Limit returns the bytes of the budget.
func (m *MemoryBudget) Limit() int64 { return m.limit }

// Reserve reserves n bytes for an owner and reports whether the budget allows it.
func (m *MemoryBudget) Reserve(who string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[who]+n > m.limit-m.used-n {
		return false
	}
	m.used += n
	m.held[who] += n
	return true
}

// Release returns n bytes of an owner to the budget.
func (m *MemoryBudget) Release(who string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.held[who] -= n; m.held[who] == 0 {
		delete(m.held, who)
	}
}

// A Reservation is the part of the budget that one request holds.
type Reservation struct {
	Budget *MemoryBudget // nil for no limit
	Owner  string
	Bytes  int64
}

// RequestBytes is the memory reserved for the stream, headers and goroutine of
// each request, in addition to a larger body.
const RequestBytes = 8 << 10

// Reserve adds n bytes to the reservation. It returns [ErrMemory] if the budget
// does not allow it.
func (r *Reservation) Reserve(n int64) error {
	if r.Budget != nil && !r.Budget.Reserve(r.Owner, n) {
		return ErrMemory
	}
	r.Bytes += n
	return nil
}

// Release returns n bytes of the reservation.
func (r *Reservation) Release(n int64) {
	if r.Budget != nil && n > 0 {
		r.Budget.Release(r.Owner, n)
	}
	r.Bytes -= n
}

// Read reads a body into a buffer that grows with the bytes received. A positive
// expected is the announced length, and reserves nothing by itself.
func (r *Reservation) Read(body io.Reader, expected int64, room []byte) ([]byte, error) {
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

// enlarge returns a larger copy of a full buffer.
func (r *Reservation) enlarge(full []byte, expected int64) ([]byte, error) {
	size := max(2*int64(cap(full)), PooledBytes)
	if expected > int64(cap(full)) {
		size = min(size, expected+1) // one more byte, to detect the end
	}
	if err := r.Reserve(size); err != nil {
		return nil, err
	}
	larger := append(make([]byte, 0, size), full...)
	if cap(full) > PooledBytes {
		r.Release(int64(cap(full)))
	}
	return larger, nil
}

const PooledBytes = 16 << 10
