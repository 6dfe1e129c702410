package union

import "fmt"

// Bounds of a session.
const (
	MaxSubscriptions   = maxSubscriptions
	MaxSubscribedBytes = maxSubscribedBytes
)

// Sessions are those of clients.
type Sessions struct{ *sessions }

// NewSessions returns no sessions, with their bounds.
func NewSessions(ofCaller, limit int) Sessions { return Sessions{newSessions(ofCaller, limit)} }

// Use has a caller use a session, which stays in use until done is called.
func (s Sessions) Use(caller, id string) (done func()) {
	return s.get(sealedSession{ID: id, Caller: caller}).begin([]byte("1"))
}

// End ends a session, as its client does.
func (s Sessions) End(id string) { s.end(id) }

// Knows reports whether the session is in memory.
func (s Sessions) Knows(id string) bool { return s.known[id] != nil }

// Sizes returns how many sessions, and how many ended ones, are in memory.
func (s Sessions) Sizes() (known, ended int) { return len(s.known), len(s.ended) }

// A Subscriber is a session that subscribes.
type Subscriber struct{ *session }

// NewSubscriber returns a session without subscriptions.
func NewSubscriber() Subscriber {
	return Subscriber{newSessions(1, 1).get(sealedSession{ID: "a"})}
}

// Ask subscribes to or unsubscribes from a resource of a server.
func (s Subscriber) Ask(method, server, uri string) (undo func(), err error) {
	undo, err = s.subscribe(target{&Server{Name: server}, uri}, method)
	if err != nil {
		err = fmt.Errorf("%s", errSubscribed.Message)
	}
	return undo, err
}

// Remembers lists what a new session at a server is told.
func (s Subscriber) Remembers(server string) []string {
	_, uris := s.wishes(&Server{Name: server})
	return uris
}
