package process

// Bounds of a process.
const (
	MaxDeserted = maxDeserted
	MaxAsked    = maxAsked
)

// LimitSessions bounds the sessions of all callers together.
func (p *Pool) LimitSessions(limit int) { p.limit = limit }

// Remembered returns how many sessions, calls and requests of servers a pool has in
// memory.
func (p *Pool) Remembered() (sessions, calls, asked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.processes {
		of.mu.Lock()
		calls, asked = calls+len(of.calls), asked+len(of.asked)
		of.mu.Unlock()
	}
	return len(p.sessions), calls, asked
}
