package endpoint

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A Reply is the response to one HTTP request: a message, or a stream of events
// once something has to be said before that.
type Reply struct {
	W         http.ResponseWriter
	Streams   bool // the client takes a stream
	InSession bool // the request names a session

	mu      sync.Mutex
	begun   bool        // the stream has
	collect bool        // until the function that Collect returned is called
	alarm   *time.Timer // ends the collection of what is written; nil unless something is
}

// collectTime is how long a [Reply] collects what it writes.
const collectTime = 2 * time.Millisecond

// Collect makes the reply send the headers of a stream, and what [Reply.Last] writes,
// together with what is written within two milliseconds. A server that answers at
// once then costs its client one packet, not three. stop must be called before the
// handler returns.
func (r *Reply) Collect() (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collect = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.collect = false
		r.stopAlarm()
	}
}

func (r *Reply) stopAlarm() {
	if r.alarm != nil {
		r.alarm.Stop()
		r.alarm = nil
	}
}

// flush sends what is written.
func (r *Reply) flush() error {
	r.stopAlarm()
	return http.NewResponseController(r.W).Flush()
}

// flushSoon sends what is written, in a moment if the reply collects.
func (r *Reply) flushSoon() error {
	if !r.collect {
		return r.flush()
	}
	if r.alarm == nil {
		r.alarm = time.AfterFunc(collectTime, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.collect {
				_ = r.flush()
			}
		})
	}
	return nil
}

// begin sends the headers of a stream.
func (r *Reply) begin() {
	if r.begun {
		return
	}
	r.begun = true
	r.W.Header().Set("Content-Type", TypeEvents)
	r.W.Header().Set("X-Accel-Buffering", "no")
	r.W.WriteHeader(http.StatusOK)
	_ = r.flushSoon()
}

// Start begins the stream, if it has not begun.
func (r *Reply) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
}

// Event sends an event, beginning the stream if it has not begun.
func (r *Reply) Event(e *Event) error { return r.write(e, r.flush) }

// Last is Event for the event after which the stream usually ends.
func (r *Reply) Last(e *Event) error { return r.write(e, r.flushSoon) }

func (r *Reply) write(e *Event, flush func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	if _, err := r.W.Write(e.Encode()); err != nil {
		return err
	}
	return flush()
}

// Message ends the reply with a message: as the body, or as the last event of a
// stream that has begun.
func (r *Reply) Message(status int, m *wire.Message) error {
	r.mu.Lock()
	begun := r.begun
	r.mu.Unlock()
	if begun {
		return r.Event(&Event{Kind: "message", Data: m.Encode()})
	}
	if status == http.StatusNotFound && r.InSession {
		m = aboutSession(m)
	}
	r.W.Header().Set("Content-Type", TypeJSON)
	r.W.WriteHeader(status)
	_, err := r.W.Write(m.Encode())
	return err
}

// aboutSession returns an error without the id of the request. In a session 404 says
// that the session is lost. A client of the Go SDK takes an error with an id for one
// of that request alone, and would go on in the lost session.
func aboutSession(m *wire.Message) *wire.Message {
	lost := *m
	lost.ID = jsontext.Value("null")
	return &lost
}

// KeepAlive writes keep-alive comments to a stream that has begun, until stop
// is called.
func (r *Reply) KeepAlive(ctx context.Context) (stop func()) {
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
				_ = r.Event(&Event{Comment: true})
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
