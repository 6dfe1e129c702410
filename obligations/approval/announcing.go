package approval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/policy-service/policy-service/obligations/outbox"
	"github.com/policy-service/policy-service/schemas/authzen"
)

const (
	// deliveriesAtOnce is the maximum number of concurrent deliveries of one way.
	deliveriesAtOnce = 4
	// digestAfter is the default of Config.DigestAfter.
	digestAfter = 5
	// shownInDigest is the maximum number of requests that one delivery describes.
	shownInDigest = 20
	// digestInterval is the interval to which Config.DigestAfter applies.
	digestInterval = time.Minute
	// announceRetry is the delay after the recipients of a request could not be determined.
	announceRetry = time.Minute
	// announceBatch is the maximum number of requests in one step.
	announceBatch = 200
)

// A Delivery is one message to a recipient. It announces one event, or several as a digest.
type Delivery struct {
	Way, Address string
	Announced    []Announced
	More         int // announcements of the digest that are not in Announced
}

// An Announced is an event of a request.
type Announced struct {
	Event   string
	Request *Request
	To      Recipient
}

// Announce determines who is told of each event that is due, and stores the messages.
func (s *Service) Announce(ctx context.Context) error {
	if s.config.Recipients == nil {
		return nil
	}
	var failed []error
	for ctx.Err() == nil {
		due, err := s.dueAnnouncements(ctx)
		if err != nil || len(due) == 0 {
			return errors.Join(append(failed, err)...)
		}
		for _, r := range due {
			unknown, err := s.announce(ctx, r)
			if err != nil {
				return errors.Join(append(failed, err)...)
			}
			failed = append(failed, unknown)
		}
	}
	return errors.Join(failed...)
}

// dueAnnouncements returns requests with an event to announce.
func (s *Service) dueAnnouncements(ctx context.Context) (due []*Request, err error) {
	err = s.view(ctx, func(tx txn) (err error) {
		due, err = tx.dueBefore(bucketAnnouncements, s.now(), announceBatch)
		return err
	})
	return due, err
}

// announce stores the messages about an event of a request, with the record of who is told. If the
// recipients are unknown, it postpones the announcement, so that it delays no other.
func (s *Service) announce(ctx context.Context, r *Request) (unknown, err error) {
	event, _ := r.announcement()
	to, others, unknown := s.recipients(ctx, r, event)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if unknown != nil {
		return unknown, s.postpone(ctx, r.ID)
	}
	err = s.transact(ctx, func(tx txn) error {
		before, err := tx.request(r.ID)
		if err != nil {
			return err
		}
		at := s.moment()
		after, err := before.announced(event, to, at.Truncate(time.Second))
		if err != nil {
			return err
		}
		if err := tx.put(before, &after); err != nil {
			return err
		}
		told := after.told(event)
		if len(told) == 0 {
			return nil
		}
		return outbox.Append(tx.Tx, announcementRecord(&after, recordAnnounce, event, told, at))
	})
	if others > 0 {
		s.config.OnError(fmt.Errorf("request %s: %d people may decide and are not notified: the maximum is %d", r.ID, others, maxRecipients))
	}
	if errors.Is(err, ErrTaskState) || errors.Is(err, ErrUnknownTask) { // it has changed since
		return nil, nil
	}
	return nil, err
}

// postpone delays the announcement of a request.
func (s *Service) postpone(ctx context.Context, id string) error {
	return s.transact(ctx, func(tx txn) error {
		before, err := tx.request(id)
		if errors.Is(err, ErrUnknownTask) {
			return nil
		}
		if err != nil {
			return err
		}
		after := before.postponed(s.now().Add(announceRetry))
		return tx.put(before, &after)
	})
}

// told returns the recipients of an event whose messages are not delivered.
func (r *Request) told(event string) (to []Recipient) {
	for _, m := range r.Announced.Messages {
		if m.Event == event {
			to = append(to, r.Announced.Recipients[m.To])
		}
	}
	return to
}

// Deliver sends all messages that are due, once.
func (s *Service) Deliver(ctx context.Context) error {
	all, err := s.dueRecipients(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(all))
	var sending sync.WaitGroup
	for i, to := range all {
		sending.Go(func() { errs[i] = s.deliverTo(ctx, to) })
	}
	sending.Wait()
	return errors.Join(errs...)
}

// RunAnnouncements announces events and delivers messages until ctx ends. A recipient who is still being
// sent to is skipped, so that no other recipient waits.
func (s *Service) RunAnnouncements(ctx context.Context) error {
	if s.config.Recipients == nil {
		return nil
	}
	var busy sync.Map // destinations
	var all sync.WaitGroup
	defer all.Wait()
	return s.repeat(ctx, func(ctx context.Context) error {
		failed := s.Announce(ctx)
		due, err := s.dueRecipients(ctx)
		for _, to := range due {
			if _, already := busy.LoadOrStore(to, true); already {
				continue
			}
			all.Go(func() {
				defer busy.Delete(to)
				if err := s.deliverTo(ctx, to); err != nil && ctx.Err() == nil {
					s.config.OnError(err)
				}
			})
		}
		return errors.Join(failed, err)
	})
}

// dueRecipients returns the destinations with messages that are due.
func (s *Service) dueRecipients(ctx context.Context) (all []string, err error) {
	err = s.view(ctx, func(tx txn) error {
		all = tx.destinations(bucketMessages, s.now())
		return nil
	})
	return all, err
}

// deliverTo sends the messages to one recipient that are due. If they are more than the recipient may
// get now, the last message is a digest of the rest.
func (s *Service) deliverTo(ctx context.Context, to string) error {
	way, address, _ := strings.Cut(to, "\x00")
	defer s.pace.enter(ctx, way)()
	room := s.pace.room(to, s.now())
	if room == 0 || ctx.Err() != nil {
		return nil
	}
	due, err := s.dueMessages(ctx, to)
	if err != nil {
		return err
	}
	var errs []error
	for len(due) > 0 && ctx.Err() == nil {
		n := 1
		if room == 1 {
			n = len(due)
		}
		d := Delivery{Way: way, Address: address, More: max(n-shownInDigest, 0)}
		for _, key := range due[:min(n, shownInDigest)] {
			one, err := s.announcedMessage(ctx, key)
			if err != nil {
				return err
			}
			d.Announced = append(d.Announced, one)
		}
		s.pace.sent(to, s.now())
		failed := s.config.Deliver(ctx, d)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.recordDelivery(ctx, to, due[:n], failed); err != nil {
			return err
		}
		errs, due, room = append(errs, failed), due[n:], room-1
	}
	return errors.Join(errs...)
}

// A messageKey identifies a message of a recipient.
type messageKey struct{ task, event string }

// dueMessages returns the messages to one recipient that are due, the earliest first. It removes those
// that are obsolete.
func (s *Service) dueMessages(ctx context.Context, to string) (due []messageKey, err error) {
	err = s.view(ctx, func(tx txn) error {
		for _, key := range tx.dueTo(bucketMessages, to, s.now()) {
			event, task, _ := strings.Cut(key, "\x00")
			r, err := tx.request(task)
			if err != nil {
				return err
			}
			if (r.Status() == authzen.TaskPending) != (event == AnnounceEnd) {
				due = append(due, messageKey{task, event})
			} // otherwise the announcement of the end removes it
		}
		return nil
	})
	return due, err
}

func (s *Service) announcedMessage(ctx context.Context, key messageKey) (one Announced, err error) {
	r, err := s.Request(ctx, key.task)
	return Announced{Event: key.event, Request: r}, err
}

// recordDelivery stores the result of a delivery of messages to one recipient.
func (s *Service) recordDelivery(ctx context.Context, to string, sent []messageKey, failed error) error {
	for some := range slices.Chunk(sent, announceBatch) {
		err := s.transact(ctx, func(tx txn) error {
			for _, key := range some {
				if err := s.recordMessage(tx, to, key, failed); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) recordMessage(tx txn, to string, key messageKey, failed error) error {
	before, err := tx.request(key.task)
	if errors.Is(err, ErrUnknownTask) {
		return nil
	}
	if err != nil {
		return err
	}
	at := s.moment()
	after, lost, err := before.delivered(key.event, to, failed == nil, at.Truncate(time.Second))
	if errors.Is(err, ErrTaskState) { // it became obsolete meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	if err := tx.put(before, &after); err != nil || !lost {
		return err
	}
	i := slices.IndexFunc(after.Announced.Recipients, func(r Recipient) bool { return r.destination() == to })
	return outbox.Append(tx.Tx, announcementRecord(&after, recordAnnounceFail, key.event, after.Announced.Recipients[i:i+1], at))
}

// messageEntries returns the index entries of the announcements of a request.
func (r *Request) messageEntries() (entries []indexEntry) {
	if event, at := r.announcement(); event != "" {
		entries = append(entries, indexEntry{bucketAnnouncements, dueKey(at, r.ID), nil})
	}
	if r.Announced == nil {
		return entries
	}
	for _, m := range r.Announced.Messages {
		to := r.Announced.Recipients[m.To].destination()
		entries = append(entries, indexEntry{bucketMessages, append(destinationPrefix(to), dueKey(m.Due, m.Event+"\x00"+r.ID)...), []byte(to)})
	}
	return entries
}

// dueTo returns what follows the time in the keys of one destination that are due.
func (t txn) dueTo(bucket []byte, to string, now time.Time) (all []string) {
	prefix := destinationPrefix(to)
	c := t.Bucket(bucket).Cursor()
	for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix) && isDue(key, now); key, _ = c.Next() {
		all = append(all, string(key[destinationBytes+8:]))
	}
	return all
}

// A pace limits how often recipients are sent to, and how many deliveries run at once.
type pace struct {
	most int // deliveries to one recipient in digestInterval

	mu    sync.Mutex
	times map[string][]time.Time // of deliveries, by recipient
	slots map[string]chan struct{}
}

func newPace(most int) *pace {
	return &pace{most: most, times: map[string][]time.Time{}, slots: map[string]chan struct{}{}}
}

// enter waits until a delivery of the way may run, or ctx ends.
func (p *pace) enter(ctx context.Context, way string) (leave func()) {
	p.mu.Lock()
	slots := p.slots[way]
	if slots == nil {
		slots = make(chan struct{}, deliveriesAtOnce)
		p.slots[way] = slots
	}
	p.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }
	case <-ctx.Done():
		return func() {}
	}
}

// room returns how many messages the recipient may get now.
func (p *pace) room(to string, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[to] = slices.DeleteFunc(p.times[to], func(t time.Time) bool { return now.Sub(t) >= digestInterval })
	if len(p.times[to]) == 0 {
		delete(p.times, to)
	}
	return p.most - len(p.times[to])
}

func (p *pace) sent(to string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[to] = append(p.times[to], now)
}
