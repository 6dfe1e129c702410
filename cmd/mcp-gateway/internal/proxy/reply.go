package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A reply is the response to one HTTP request: a message, or a stream of events
// once something has to be said before that.
type reply struct {
	w       http.ResponseWriter
	streams bool // the client takes a stream

	mu    sync.Mutex
	begun bool // the stream has
}

// begin sends the headers of a stream.
func (r *reply) begin() {
	if r.begun {
		return
	}
	r.begun = true
	r.w.Header().Set("Content-Type", typeEvents)
	r.w.Header().Set("X-Accel-Buffering", "no")
	r.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(r.w).Flush()
}

// start begins the stream, if it has not begun.
func (r *reply) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
}

// event sends an event, beginning the stream if it has not begun.
func (r *reply) event(e *event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	if _, err := r.w.Write(e.encode()); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

// message ends the reply with a message: as the body, or as the last event of a
// stream that has begun.
func (r *reply) message(status int, m *wire.Message) error {
	r.mu.Lock()
	begun := r.begun
	r.mu.Unlock()
	if begun {
		return r.event(&event{kind: "message", data: m.Encode()})
	}
	r.w.Header().Set("Content-Type", typeJSON)
	r.w.WriteHeader(status)
	_, err := r.w.Write(m.Encode())
	return err
}

// keepAlive writes keep-alive comments to a stream that has begun, until stop
// is called.
func (r *reply) keepAlive(ctx context.Context) (stop func()) {
	r.mu.Lock()
	begun := r.begun
	r.mu.Unlock()
	if !begun {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var alive sync.WaitGroup
	alive.Go(func() {
		for tick := time.NewTicker(keepAliveInterval); ; {
			select {
			case <-tick.C:
				_ = r.event(&event{comment: true})
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
	return func() {
		cancel()
		alive.Wait()
	}
}
