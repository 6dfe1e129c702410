package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"
	"golang.org/x/time/rate"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// Bounds of a connection.
const (
	maxMessage   = 64 << 10 // bytes
	maxQueue     = 64       // messages that a participant has not read; one more ends the connection
	writeTimeout = 10 * time.Second
	pingInterval = 30 * time.Second
	perSecond    = 50 // messages of a participant; more wait

	joinsPerMinute    = 60
	requestsPerMinute = 10 // for access
)

// A member is a participant in a topic.
type member struct {
	*Participant
	topic string
	level string // full or restricted, as it was told
	conn  *websocket.Conn
	out   chan outgoing
	drop  context.CancelFunc // ends the connection at once
}

// An outgoing message, and what follows when it is written.
type outgoing struct {
	text    []byte
	written func()
}

// Levels, as welcome tells them.
const (
	full       = "full"
	restricted = "restricted"
)

func level(d authzen.Decision) string {
	if d.Decision {
		return full
	}
	return restricted
}

// ServeHTTP lets a participant into the topic of the path.
func (r *Room) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	participant := r.cfg.participant(token)
	if participant == nil || !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the token is not known", http.StatusUnauthorized)
		return
	}
	name := req.PathValue("topic")
	if _, ok := r.cfg.Topics[name]; !ok {
		http.Error(w, "there is no such topic", http.StatusNotFound)
		return
	}
	if !r.may("join", participant.ID, joinsPerMinute) {
		http.Error(w, "you join too often", http.StatusTooManyRequests)
		return
	}
	decisions, err := r.gate.permits(req.Context(), []*authzen.EvaluationRequest{topicQuestion(participant, "topic.join", name), topicQuestion(participant, methodCall, name)})
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case !decisions[0].Decision:
		http.Error(w, "policies do not let you join", http.StatusForbidden)
		return
	}
	conn, err := websocket.Accept(w, req, nil)
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxMessage)
	r.serve(&member{Participant: participant, topic: name, level: level(decisions[1]), conn: conn, out: make(chan outgoing, maxQueue)})
}

func topicQuestion(p *Participant, action, topic string) *authzen.EvaluationRequest {
	return question(p.subject(), action, authzen.Resource{Type: "topic", ID: topic}, nil)
}

// serve carries the messages of a member, in the order in which it sends them.
func (r *Room) serve(m *member) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	m.drop = cancel
	go func() {
		defer cancel()
		m.write(ctx)
	}()
	r.join(ctx, m)
	defer r.leave(m)
	limit := rate.NewLimiter(perSecond, perSecond)
	for limit.Wait(ctx) == nil {
		kind, text, err := m.conn.Read(ctx)
		if err != nil {
			return
		}
		if kind != websocket.MessageText {
			m.conn.Close(websocket.StatusUnsupportedData, "messages are text")
			return
		}
		r.receive(ctx, m, text)
	}
}

// write sends what is queued, until the connection ends.
func (m *member) write(ctx context.Context) {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
			if m.within(ctx, m.conn.Ping) != nil {
				return
			}
		case o := <-m.out:
			if m.within(ctx, func(ctx context.Context) error { return m.conn.Write(ctx, websocket.MessageText, o.text) }) != nil {
				return
			}
			if o.written != nil {
				o.written()
			}
		}
	}
}

func (m *member) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return do(ctx)
}

var errSlow = errors.New("the participant does not read")

// send queues an envelope. A participant that does not read is dropped: others must not wait for it.
func (m *member) send(e *Envelope, written func()) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	select {
	case m.out <- outgoing{text, written}:
		return nil
	default:
		m.drop()
		return errSlow
	}
}
