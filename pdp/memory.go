package pdp

import (
	"errors"
	"io"
	"sync"
)

// errMemory is a body, or an answer, for which there is no memory now.
var errMemory = errors.New("too many bodies are being read: ask again")

// A memory is a budget of bytes: those of bodies that are being read and worked
// on, over all connections and their streams, and of large answers. Who has some
// of it may have more as long as that is no more than what is left (dynamic
// thresholds, as in switches that share a buffer): one alone has half of it at
// most, and whoever comes next has some.
type memory struct {
	most int64

	mu   sync.Mutex
	used int64
	held map[string]int64 // by tenant or, where a request names none, by caller
}

func newMemory(most int64) *memory { return &memory{most: most, held: map[string]int64{}} }

// take reports whether there are n bytes for somebody, who then has them.
func (m *memory) take(who string, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[who]+n > m.most-m.used-n {
		return false
	}
	m.used += n
	m.held[who] += n
	return true
}

// give takes n bytes back.
func (m *memory) give(who string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.held[who] -= n; m.held[who] == 0 {
		delete(m.held, who)
	}
}

// load is how many bytes are in use.
func (m *memory) load() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// A share is what one request has of a memory.
type share struct {
	of    *memory // nil for one without bounds
	who   string
	bytes int64
}

// requestBytes are taken for each request, beside its body if that is larger: a
// stream, its headers and whoever waits for it are not nothing.
const requestBytes = 8 << 10

// grow takes n bytes more.
func (s *share) grow(n int64) error {
	if s.of != nil && !s.of.take(s.who, n) {
		return errMemory
	}
	s.bytes += n
	return nil
}

// shrink gives n bytes back.
func (s *share) shrink(n int64) {
	if s.of != nil && n > 0 {
		s.of.give(s.who, n)
	}
	s.bytes -= n
}

// read reads a body, of which there are expected bytes if that is known, into
// room that grows with what has come: a length that is only announced takes none.
func (s *share) read(body io.Reader, expected int64, room []byte) ([]byte, error) {
	for {
		if len(room) == cap(room) {
			larger, err := s.larger(room, expected)
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

// larger returns a copy of full room with more of it.
func (s *share) larger(full []byte, expected int64) ([]byte, error) {
	size := max(2*int64(cap(full)), keptBuffer)
	if expected > int64(cap(full)) {
		size = min(size, expected+1) // and one, to see the end
	}
	if err := s.grow(size); err != nil {
		return nil, err
	}
	larger := append(make([]byte, 0, size), full...)
	if cap(full) > keptBuffer {
		s.shrink(int64(cap(full)))
	}
	return larger, nil
}
