package process

import (
	"bytes"
	"sync"
	"time"

	"github.com/policy-service/policy-service/obligations/plain"
)

// Bounds of what the log gets of a process's standard error.
const (
	maxLine        = 1 << 10 // bytes of a line
	linesPerMinute = 120
)

// A stderr writes lines of a process to the log of the gateway.
type stderr struct {
	pool *Pool

	mu      sync.Mutex
	line    []byte
	minute  time.Time // when it began
	written int       // lines in it
	dropped int
}

// Write implements [io.Writer].
func (s *stderr) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := text; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		s.line = append(s.line, part[:min(len(part), maxLine-min(maxLine, len(s.line)))]...)
		if rest = after; ended {
			s.log()
		}
	}
	return len(text), nil
}

// log writes the line that has ended, unless there were too many.
func (s *stderr) log() {
	defer func() { s.line = s.line[:0] }()
	if now := time.Now(); now.Sub(s.minute) >= time.Minute {
		if s.dropped > 0 {
			s.pool.cfg.Log.Warn("lines of a server's standard error were dropped", "server", s.pool.cfg.Server, "lines", s.dropped)
		}
		s.minute, s.written, s.dropped = now, 0, 0
	}
	if len(bytes.TrimSpace(s.line)) == 0 {
		return
	}
	if s.written == linesPerMinute {
		s.dropped++
		return
	}
	s.written++
	s.pool.cfg.Log.Info("standard error of a server", "server", s.pool.cfg.Server, "line", plain.Text(string(bytes.ToValidUTF8(s.line, []byte("?")))))
}
