package process

import (
	"fmt"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/child"
)

// MeasuresMemory reports whether this system has what [Config.Memory] needs.
const MeasuresMemory = child.MeasuresMemory

// memoryInterval is the time between two looks at the memory of processes.
const memoryInterval = 500 * time.Millisecond

// An EndedError means that the gateway has ended a process during a request. The
// process may have carried the request out. Clients may get the text.
type EndedError struct{ reason string }

func (e *EndedError) Error() string { return e.reason }

// watchMemory ends processes whose groups use more memory than [Config.Memory], until
// the pool is closed.
func (p *Pool) watchMemory() {
	for tick := time.NewTicker(memoryInterval); ; {
		select {
		case <-tick.C:
		case <-p.done:
			tick.Stop()
			return
		}
		p.checkMemory()
	}
}

func (p *Pool) checkMemory() {
	running := p.byPID()
	if len(running) == 0 {
		return
	}
	var groups []int
	for pid := range running {
		groups = append(groups, pid)
	}
	used, err := child.Memory(groups)
	if err != nil {
		p.cfg.Log.Error("the memory of a server is not known", "server", p.cfg.Server, "error", err)
		return
	}
	for pid, of := range running {
		if used[pid] > p.cfg.Memory {
			of.endForMemory(used[pid])
		}
	}
}

// byPID returns the processes that have not ended, by their ids.
func (p *Pool) byPID() map[int]*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[int]*process)
	for of := range p.running {
		all[of.command.Process.Pid] = of
	}
	return all
}

// endForMemory ends a process at once, with all that it has started.
func (of *process) endForMemory(used int64) {
	limit := of.pool.cfg.Memory
	of.mu.Lock()
	already := of.over != nil
	of.over = &EndedError{fmt.Sprintf("the gateway has ended the server, which used more than %d bytes of memory: it may have carried out the request", limit)}
	of.mu.Unlock()
	if already {
		return
	}
	of.pool.cfg.Log.Error("a process of a server is ended, because it uses too much memory", "server", of.pool.cfg.Server, "pid", of.command.Process.Pid, "bytes", used, "memory", limit)
	child.Kill(of.command)
}

// endError returns why a process has ended during a request.
func (of *process) endError() error {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.over != nil {
		return of.over
	}
	return errEnded
}
