package pdp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	feedEvery   = 250 * time.Millisecond // at most one message in this time
	feedEntries = 50                     // entries that one message describes
	feedReach   = 20_000                 // entries that one message summarizes
	feedStreams = 200                    // open streams
	feedShare   = feedStreams / 4        // of them, of one caller
	feedBeat    = 15 * time.Second       // between comments that keep an idle connection open
	feedWrite   = 10 * time.Second       // for a client to take a message
	feedTime    = 5 * time.Minute        // after which a client must show its credential again
)

// errManyStreams means that as many streams are open as there may be.
var errManyStreams = errors.New("too many streams are open")

// A feed tells streams about new entries of the log. It does nothing while there are none.
type feed struct {
	log     *decisionlog.Log
	streams atomic.Int64
	ended   chan struct{} // closed when the service stops

	mu    sync.Mutex
	rooms map[string]*feedRoom // by tenants
	of    map[string]int       // streams by caller and tenants
}

// A feedRoom has the streams for the same tenants, for which each message is made once.
type feedRoom struct {
	key     string
	tenants []string // nil means all
	latest  atomic.Pointer[feedMessage]
	stop    context.CancelFunc
	fresh   chan struct{} // has a token when entries have become readable

	mu      sync.Mutex
	waiting map[chan struct{}]bool // channels of streams, each with room for a token
}

// A feedMessage is a message as it is sent.
type feedMessage struct {
	from  int64
	until int64 // index after the last entry that is in it
	read  int64 // index after the last entry that was read for it, which may be of another tenant
	text  []byte
}

func newFeed() *feed {
	return &feed{ended: make(chan struct{}), rooms: make(map[string]*feedRoom), of: make(map[string]int)}
}

// readable wakes the rooms after further entries have become readable.
func (f *feed) readable() {
	if f.streams.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, room := range f.rooms {
		signal(room.fresh)
	}
}

// signal puts a token into a channel that has room for one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// end ends all streams.
func (f *feed) end() { close(f.ended) }

// join adds a stream of a caller, which has had its first message, to the room for its tenants. leave
// removes it.
func (f *feed) join(caller string, tenants []string, first *feedMessage) (room *feedRoom, wake chan struct{}, leave func(), err error) {
	if f.streams.Add(1) > feedStreams {
		f.streams.Add(-1)
		return nil, nil, nil, errManyStreams
	}
	key := "all"
	if tenants != nil {
		tenants = slices.Clone(tenants) // not nil, which would mean all
		slices.Sort(tenants)
		key = "of " + strings.Join(tenants, " ")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	owner := caller + " " + key
	if caller != "" && f.of[owner] == feedShare {
		f.streams.Add(-1)
		return nil, nil, nil, errManyStreams
	}
	f.of[owner]++
	if room = f.rooms[key]; room == nil {
		ctx, stop := context.WithCancel(context.Background())
		room = &feedRoom{key: key, tenants: tenants, stop: stop, fresh: make(chan struct{}, 1), waiting: make(map[chan struct{}]bool)}
		room.latest.Store(first)
		f.rooms[key] = room
		go f.run(ctx, room)
	}
	wake = make(chan struct{}, 1)
	wake <- struct{}{} // the room may be ahead of the first message
	signal(room.fresh)
	room.mu.Lock()
	room.waiting[wake] = true
	room.mu.Unlock()
	return room, wake, func() { f.leave(owner, room, wake) }, nil
}

func (f *feed) leave(owner string, room *feedRoom, wake chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams.Add(-1)
	if f.of[owner]--; f.of[owner] == 0 {
		delete(f.of, owner)
	}
	room.mu.Lock()
	delete(room.waiting, wake)
	empty := len(room.waiting) == 0
	room.mu.Unlock()
	if empty {
		room.stop()
		delete(f.rooms, room.key)
	}
}

// run makes the messages of a room until it is empty. There is none about entries of other tenants alone, so
// that nobody can tell when others are active.
func (f *feed) run(ctx context.Context, room *feedRoom) {
	for read := room.latest.Load().read; ; {
		select {
		case <-ctx.Done():
			return
		case <-room.fresh:
		}
		message, err := f.message(ctx, room.latest.Load().until, read, room.tenants)
		if err == nil {
			read = message.read
		}
		if err == nil && message.until > room.latest.Load().until {
			room.publish(message)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(feedEvery):
		}
	}
}

// publish makes a message the latest one, and wakes the streams.
func (room *feedRoom) publish(m *feedMessage) {
	room.latest.Store(m)
	room.mu.Lock()
	defer room.mu.Unlock()
	for wake := range room.waiting {
		signal(wake)
	}
}

// message summarizes the readable entries from an index on, of which those before read need not be read. If they
// are many, it begins later, and the gap in the indexes says so.
func (f *feed) message(ctx context.Context, from, read int64, tenants []string) (*feedMessage, error) {
	until := f.log.Readable()
	begin := max(read, until-feedReach)
	activity, err := f.log.ReadActivity(ctx, begin, until, tenants, feedEntries)
	if err != nil {
		return nil, fmt.Errorf("summarize entries: %w", err)
	}
	if begin == read {
		activity.From = from
	}
	if tenants != nil && activity.Until == begin { // none of theirs
		activity.Until = from
	}
	text := []byte("id: " + strconv.FormatInt(activity.Until, 10) + "\nevent: entries\ndata: ")
	data, err := json.Marshal(activity)
	if err != nil {
		return nil, fmt.Errorf("summarize entries: %w", err)
	}
	return &feedMessage{activity.From, activity.Until, until, append(append(text, data...), "\n\n"...)}, nil
}

// serve answers with a stream of server-sent events about new entries.
func (f *feed) serve(c echo.Context) error {
	if err := knownQuery(c, "tenant"); err != nil {
		return err
	}
	tenants := callerFrom(c.Request().Context()).Tenants
	if tenant := c.QueryParam("tenant"); tenant != "" {
		if tenants != nil && !slices.Contains(tenants, tenant) {
			tenants = []string{} // as for a tenant without entries
		} else {
			tenants = []string{tenant}
		}
	}
	from, err := f.resume(c.Request().Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	first, err := f.message(c.Request().Context(), from, from, tenants)
	if err != nil {
		return err
	}
	room, wake, leave, err := f.join(callerFrom(c.Request().Context()).ID, tenants, first)
	if err != nil {
		return err
	}
	defer leave()
	header := c.Response().Header()
	header[echo.HeaderCacheControl] = noStore
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // for proxies that would collect messages
	s := &feedStream{c: c, control: http.NewResponseController(c.Response()), feed: f, room: room}
	if err := s.send(first, "retry: 2000\n"); err == nil {
		s.follow(wake)
	}
	return nil // the client is gone or too slow, or the stream is over
}

// resume returns the index after the last entry that a client has. A new client begins with the last entries.
func (f *feed) resume(last string) (int64, error) {
	size := f.log.Head().Size
	if last == "" {
		return max(0, size-feedEntries), nil
	}
	from, err := strconv.ParseInt(last, 10, 64)
	if err != nil || from < 0 {
		return 0, authzen.Invalid("", "has a Last-Event-ID that is not an index: %q", last)
	}
	return min(from, size), nil
}

// A feedStream is the answer to one client.
type feedStream struct {
	c       echo.Context
	control *http.ResponseController
	feed    *feed
	room    *feedRoom
	until   int64 // index after the last entry that was sent
	joined  bool  // a message of the room was sent
}

// follow sends messages until the client goes, the service stops, or the client must show its credential again.
func (s *feedStream) follow(wake chan struct{}) {
	ctx := s.c.Request().Context()
	beat := time.NewTicker(feedBeat)
	defer beat.Stop()
	end := time.NewTimer(feedTime)
	defer end.Stop()
	if _, person := console.IdentityFrom(ctx); person {
		end.Stop() // the console watches the session
	}
	for err := error(nil); err == nil; {
		select {
		case <-ctx.Done():
			return
		case <-s.feed.ended:
			return
		case <-end.C:
			return
		case <-beat.C:
			err = s.write([]byte(":\n\n"))
		case <-wake:
			err = s.next(ctx)
		}
	}
}

// next sends the latest message of the room. A client that does not keep up skips messages by that. A new client
// gets one of its own, unless the message of the room begins where its first one ended.
func (s *feedStream) next(ctx context.Context) (err error) {
	m := s.room.latest.Load()
	if m.until <= s.until {
		return nil
	}
	if !s.joined && m.from != s.until {
		if m, err = s.feed.message(ctx, s.until, s.until, s.room.tenants); err != nil || m.until <= s.until {
			return err
		}
	} else {
		s.joined = true
	}
	return s.send(m, "")
}

func (s *feedStream) send(m *feedMessage, before string) error {
	s.until = m.until
	return s.write(slices.Concat([]byte(before), m.text))
}

func (s *feedStream) write(text []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(feedWrite)); err != nil {
		return err
	}
	if _, err := s.c.Response().Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}
