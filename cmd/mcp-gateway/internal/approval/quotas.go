package approval

import "sync"

// quotas bound the calls that wait, of each caller and altogether.
type quotas struct {
	mu        sync.Mutex
	ofCaller  map[string]int
	total     int
	perCaller int // at most
	limit     int // of total
}

// acquire counts a call, or reports that a limit is reached.
func (c *quotas) acquire(owner string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total >= c.limit || c.ofCaller[owner] >= c.perCaller {
		return false
	}
	c.total++
	c.ofCaller[owner]++
	return true
}

// add counts a call that waits, whether there is place or not.
func (c *quotas) add(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	c.ofCaller[owner]++
}

// Waiting returns how many calls wait.
func (s *Service) Waiting() int {
	s.pending.mu.Lock()
	defer s.pending.mu.Unlock()
	return s.pending.total
}

// release ends the counting of a call.
func (c *quotas) release(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.ofCaller[owner]--; c.ofCaller[owner] <= 0 {
		delete(c.ofCaller, owner)
	}
}
