package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// A Room has the topics, and carries messages between their members.
type Room struct {
	cfg   *Config
	gate  *Gate
	store *Store
	log   *slog.Logger
	ctx   context.Context // ends with the program

	mu       sync.Mutex
	members  map[string]map[string]*member // by topic and name
	joined   chan struct{}                 // closed when somebody joins
	calls    map[callKey]*call
	asks     map[callKey]*ask
	policies map[policyKey]*accessPolicy
	limits   map[string]*rate.Limiter // by what is limited and participant
}

func newRoom(ctx context.Context, cfg *Config, gate *Gate, store *Store, log *slog.Logger) (*Room, error) {
	r := &Room{
		cfg: cfg, gate: gate, store: store, log: log, ctx: ctx, joined: make(chan struct{}),
		members: make(map[string]map[string]*member), asks: make(map[callKey]*ask), limits: make(map[string]*rate.Limiter),
	}
	for name := range cfg.Topics {
		r.members[name] = make(map[string]*member)
	}
	var err error
	if r.calls, r.policies, err = store.load(); err != nil {
		return nil, err
	}
	for _, c := range r.calls {
		if c.State == waiting {
			go r.await(c)
		}
	}
	go r.keep()
	return r, nil
}

// may counts what a participant does, and reports whether it may do it this minute.
func (r *Room) may(what, name string, perMinute int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := what + " " + name
	if r.limits[key] == nil {
		r.limits[key] = rate.NewLimiter(rate.Every(time.Minute/time.Duration(perMinute)), perMinute)
	}
	return r.limits[key].Allow()
}

// join adds a member. An earlier connection of the participant ends.
func (r *Room) join(ctx context.Context, m *member) {
	r.mu.Lock()
	former := r.members[m.topic][m.ID]
	r.members[m.topic][m.ID] = m
	r.say(newEnvelope(gateway, []string{m.ID}, kindSystem, welcome{"welcome", m.level, m.ID}), m.topic)
	close(r.joined)
	r.joined = make(chan struct{})
	r.deliverTo(m)
	if former == nil {
		r.say(newEnvelope(gateway, r.others(m), kindSystem, presence{"presence", "join", m.ID}), m.topic)
	}
	r.mu.Unlock()
	if former != nil {
		go former.conn.Close(websocket.StatusNormalClosure, "the participant has joined again")
	}
	r.log.Info("join", "topic", m.topic, "participant", m.ID, "level", m.level)
	r.announceAll(ctx, m)
}

func (r *Room) leave(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.members[m.topic][m.ID] != m {
		return
	}
	delete(r.members[m.topic], m.ID)
	r.say(newEnvelope(gateway, r.others(m), kindSystem, presence{"presence", "leave", m.ID}), m.topic)
	r.log.Info("leave", "topic", m.topic, "participant", m.ID)
}

type welcome struct {
	Type          string `json:"type"`
	TokenType     string `json:"tokenType"` // the level
	ParticipantID string `json:"participantId"`
}

type presence struct {
	Type        string `json:"type"`
	Event       string `json:"event"` // join or leave
	Participant string `json:"participantId"`
}

// others returns the names of the other members, in order. The room is locked.
func (r *Room) others(m *member) []string {
	var all []string
	for name := range r.members[m.topic] {
		if name != m.ID {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// say sends an envelope to those it names. The room is locked.
func (r *Room) say(e *Envelope, topic string) {
	for _, name := range e.To {
		if m := r.members[topic][name]; m != nil {
			if err := m.send(e, nil); err != nil {
				r.log.Warn("dropped", "topic", topic, "participant", name, "error", err)
			}
		}
	}
}

// tell is say, of the room that is not locked.
func (r *Room) tell(topic string, e *Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say(e, topic)
}

// forward sends an envelope of a member on. One that names nobody is for everybody else.
func (r *Room) forward(m *member, e *Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.To != nil {
		r.say(e, m.topic)
		return
	}
	for _, name := range r.others(m) {
		if err := r.members[m.topic][name].send(e, nil); err != nil {
			r.log.Warn("dropped", "topic", m.topic, "participant", name, "error", err)
		}
	}
}

// A message with its envelope, and who sent it.
type received struct {
	*member
	env *Envelope
	msg *Message
}

// receive carries out what a member has sent, or tells it why not.
func (r *Room) receive(ctx context.Context, m *member, text []byte) {
	in := &received{member: m, env: &Envelope{}, msg: &Message{}}
	err := r.carry(ctx, in, text)
	if err == nil {
		return
	}
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		refusal = &Refusal{Code: codeInvalid, Message: err.Error()}
	}
	r.refuse(in, refusal)
}

func (r *Room) carry(ctx context.Context, in *received, text []byte) (err error) {
	if in.env, err = readEnvelope(text, in.ID); err != nil {
		return err
	}
	if in.env.Kind == kindSystem {
		return r.declare(in)
	}
	if in.msg, err = readMessage(in.env.Payload); err != nil {
		return err
	}
	if in.msg.isResponse() {
		return r.respond(ctx, in)
	}
	return r.method(in.msg.Method)(ctx, in)
}

// method returns what carries out a message of a method.
func (r *Room) method(name string) func(context.Context, *received) error {
	switch name {
	case methodCall, methodRequest:
		return r.callTool
	case methodCapability:
		return r.requestCapability
	case methodRespond:
		return r.decideOn
	case methodAuthorization:
		return r.ownAuthorization
	case methodElicit:
		return r.ownForm
	}
	return r.relay
}

// refuse tells a member why its message went no further.
func (r *Room) refuse(in *received, refusal *Refusal) {
	r.log.Info("refused", "topic", in.topic, "participant", in.ID, "method", in.msg.Method, "envelope", in.env.ID, "code", refusal.Code, "reason", refusal.Message)
	to := []string{in.ID}
	if refusal.blocked != nil {
		r.tell(in.topic, newEnvelope(gateway, to, kindSystem, struct {
			Type string `json:"type"`
			blocked
		}{"tool_call_blocked", *refusal.blocked}))
	}
	if in.msg.isRequest() {
		r.tell(in.topic, newEnvelope(in.stead(), to, kindMCP, &Message{JSONRPC: "2.0", ID: in.msg.ID, Error: encode(refusal)}))
		return
	}
	r.tell(in.topic, newEnvelope(gateway, to, kindSystem, fault{"error", in.env.ID, refusal.Code, refusal.Message}))
}

type fault struct {
	Type    string `json:"type"`
	About   string `json:"about,omitzero"` // id of the envelope
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// stead is in whose stead the room answers a request: the one whom it was for.
func (in *received) stead() string {
	if len(in.env.To) == 1 {
		return in.env.To[0]
	}
	return gateway
}

// recipient returns the only one whom a message is for.
func (r *Room) recipient(in *received) (*Participant, error) {
	if len(in.env.To) != 1 {
		return nil, invalid("a request is for one participant: name it in to")
	}
	to := r.cfg.named(in.env.To[0])
	if to == nil {
		return nil, invalid("there is no participant %q", in.env.To[0])
	}
	return to, nil
}

// An ask is a request between participants that waits for its response.
type ask struct {
	of     string // who is asked
	method string
	until  time.Time
}

// Bounds of requests that wait for a response.
const (
	maxAsks = 100 // of a participant
	askFor  = 10 * time.Minute
)

// relay sends a message of any other method on, if policies permit the method.
func (r *Room) relay(ctx context.Context, in *received) error {
	resource := authzen.Resource{Type: "topic", ID: in.topic}
	if in.env.To != nil || in.msg.isRequest() {
		to, err := r.recipient(in)
		if err != nil {
			return err
		}
		resource = to.subject()
	}
	d, err := r.gate.evaluate(ctx, question(in.subject(), in.msg.Method, resource, nil))
	if err != nil {
		return err
	}
	if !d.Decision {
		return &Refusal{Code: codeDenied, Message: "Authorization denied", Data: blocked{Reason: why(d, "policies do not permit "+in.msg.Method)}}
	}
	if in.msg.isRequest() {
		if err := r.ask(in, in.env.To[0]); err != nil {
			return err
		}
	}
	r.forward(in.member, in.env)
	return nil
}

// ask notes a request, so that its response finds the way back.
func (r *Room) ask(in *received, of string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.members[in.topic][of] == nil {
		return away(of)
	}
	own := 0
	for k := range r.asks {
		if k.topic == in.topic && k.requester == in.ID {
			own++
		}
	}
	key := callKey{in.topic, in.ID, string(in.msg.ID)}
	switch {
	case r.inUse(key):
		return invalid("the id is that of a request that has no response yet")
	case own >= maxAsks:
		return &Refusal{Code: codeInternal, Message: "too many requests have no response yet"}
	}
	r.asks[key] = &ask{of, in.msg.Method, time.Now().Add(askFor)}
	return nil
}

func away(name string) *Refusal {
	return &Refusal{Code: codeInternal, Message: name + " is not in the topic"}
}

// respond carries a response to whom it answers. A response to nothing goes nowhere.
func (r *Room) respond(ctx context.Context, in *received) error {
	if c := r.elicited(in); c != nil {
		return r.decideByForm(ctx, in, c)
	}
	if c := r.callOf(in); c != nil {
		return r.ownersAnswer(ctx, in, c)
	}
	return r.respondToAsk(in)
}

func (r *Room) respondToAsk(in *received) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var answered []callKey
	for key, a := range r.asks {
		if key.topic == in.topic && key.id == string(in.msg.ID) && a.of == in.ID && in.mayBeFor(key.requester) {
			answered = append(answered, key)
		}
	}
	if len(answered) != 1 {
		return invalid("the response answers no request, or more than one")
	}
	key := answered[0]
	method := r.asks[key].method
	delete(r.asks, key)
	if method == methodList {
		go r.list(in, key.requester)
		return nil
	}
	r.say(in.to(key.requester), in.topic)
	return nil
}

// mayBeFor reports whether a response may be for a participant. It need not say for whom it is.
func (in *received) mayBeFor(name string) bool {
	return in.env.To == nil || slices.Contains(in.env.To, name)
}

// to returns the envelope for these participants alone.
func (in *received) to(names ...string) *Envelope {
	e := *in.env
	e.To = names
	return &e
}

// levelEvery is how often the room asks for the levels of its members. Each time is an entry of the
// decision log.
const levelEvery = 5 * time.Second

// keep tells changed levels, and ends what waits for too long.
func (r *Room) keep() {
	tick := time.NewTicker(levelEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		for topic := range r.cfg.Topics {
			r.tellLevels(topic)
		}
		r.expire(time.Now())
	}
}

// tellLevels welcomes again whose level has changed.
func (r *Room) tellLevels(topic string) {
	r.mu.Lock()
	var members []*member
	var questions []*authzen.EvaluationRequest
	for _, m := range r.members[topic] {
		members = append(members, m)
		questions = append(questions, topicQuestion(m.Participant, methodCall, topic))
	}
	r.mu.Unlock()
	decisions, err := r.gate.permits(r.ctx, questions)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, m := range members {
		if now := level(decisions[i]); now != m.level && r.members[topic][m.ID] == m {
			m.level = now
			r.say(newEnvelope(gateway, []string{m.ID}, kindSystem, welcome{"welcome", now, m.ID}), topic)
		}
	}
}

// list sends on those tools of an answer to tools/list that the requester may call, or can be permitted
// to call.
func (r *Room) list(in *received, requester string) {
	result, err := r.filter(r.ctx, in, requester)
	m := &Message{JSONRPC: "2.0", ID: in.msg.ID, Result: result}
	if err != nil {
		m.Result, m.Error = nil, encode(err)
	}
	e := in.to(requester)
	e.Payload = encode(m)
	if in.msg.Error != nil {
		e.Payload = in.env.Payload
	}
	r.tell(in.topic, e)
}
