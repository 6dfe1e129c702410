package gateway

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
)

// A serverHealth is what calls and lists of tools have shown of a server. No
// server is probed.
type serverHealth struct {
	answered, failed time.Time // the latest of each
	fault            string    // of the latest failure
}

// A health records what is known of the servers. It is safe for concurrent use.
type health struct {
	mu      sync.Mutex
	servers map[string]serverHealth // by name
}

func newHealth() *health { return &health{servers: make(map[string]serverHealth)} }

// record records that a server has answered or, with a fault, that it has not.
func (h *health) record(server, fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[server]
	if fault == "" {
		s.answered = time.Now()
	} else {
		s.failed, s.fault = time.Now(), fault
	}
	h.servers[server] = s
}

// ended records the outcome of a forwarded call: the error of a server is an
// answer.
func (h *health) ended(server, how string) {
	if how == enforce.Unknown {
		h.record(server, "a call got no answer")
		return
	}
	h.record(server, "")
}

func (h *health) of(server string) serverHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.servers[server]
}

// A readiness is the body of /readyz?verbose. Ages are in seconds.
type readiness struct {
	Ready bool `json:"ready"`
	PDP   struct {
		Breaker       string   `json:"breaker"`
		LastAnswerAge *float64 `json:"last_answer_age,omitempty"`
		Error         string   `json:"error,omitempty"`
	} `json:"pdp"`
	Servers       []serverReadiness `json:"servers"`
	Configuration struct {
		ReadAge *float64 `json:"read_age"`
		Error   string   `json:"error,omitempty"`
	} `json:"configuration"`
	Trail struct {
		Error string `json:"error,omitempty"`
	} `json:"trail"`
}

type serverReadiness struct {
	Name          string   `json:"name"`
	Mode          mode     `json:"mode"`
	LastAnswerAge *float64 `json:"last_answer_age,omitempty"`
	LastErrorAge  *float64 `json:"last_error_age,omitempty"`
	LastError     string   `json:"last_error,omitempty"`
}

// age returns the seconds since a time, and nil if there was none.
func age(since time.Time) *float64 {
	if since.IsZero() {
		return nil
	}
	seconds := time.Since(since).Seconds()
	return &seconds
}

// readiness reports whether the gateway can decide and record calls. A server
// that is down does not stop the calls of others: it is only shown.
func (g *gateway) readiness() *readiness {
	r := new(readiness)
	pdp := g.pdp.Health()
	r.PDP.Breaker, r.PDP.LastAnswerAge = pdp.Breaker, age(pdp.Answered)
	if pdp.Err != nil {
		r.PDP.Error = pdp.Err.Error()
	}
	read := g.reloaded.Load()
	if r.Configuration.ReadAge = age(read.at); read.err != nil {
		r.Configuration.Error = read.err.Error()
	}
	trail := g.trail.Err()
	if trail != nil {
		r.Trail.Error = trail.Error()
	}
	r.Ready = pdp.Err == nil && trail == nil
	cfg := g.rules.Load().cfg
	for i := range cfg.Servers {
		s := &cfg.Servers[i]
		h := g.health.of(s.Name)
		r.Servers = append(r.Servers, serverReadiness{s.Name, cfg.modeOf(s), age(h.answered), age(h.failed), h.fault})
	}
	return r
}

// readyz answers with one word, and without details, because anybody may ask.
func (g *gateway) readyz(w http.ResponseWriter, _ *http.Request) {
	if !g.readiness().Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "unready")
		return
	}
	fmt.Fprintln(w, "ok")
}

// readyzVerbose answers operators, with details on request.
func (g *gateway) readyzVerbose(w http.ResponseWriter, r *http.Request) {
	if !r.URL.Query().Has("verbose") {
		g.readyz(w, r)
		return
	}
	state := g.readiness()
	w.Header().Set("Content-Type", "application/json")
	if !state.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.MarshalWrite(w, state, jsontext.WithIndent("  ")) // the client may be gone
	fmt.Fprintln(w)
}
