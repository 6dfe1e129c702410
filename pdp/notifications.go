package pdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/notify"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// defaultEmailAttribute is the attribute with the address of an approver.
const defaultEmailAttribute = "email"

// maxDeciders is the maximum number of people whom one search for approvers returns.
const maxDeciders = 1000

// A peopleNotifier notifies those whom policies let decide on Access Requests.
type peopleNotifier struct {
	*notify.Notifier
	settings notify.Settings
	server   *server
	console  string   // base URL of the links
	warned   sync.Map // addresses that a warning was about
}

// newPeopleNotifier returns a notifier, or nil if the settings notify nobody.
func newPeopleNotifier(s *server) (*peopleNotifier, error) {
	c := s.config
	if c.Notify.Off() {
		return nil, nil
	}
	if s.listeners.consoleURL == "" {
		return nil, &yamldoc.SettingError{Path: []string{"console", "notify"}, Reason: "needs the console: messages have links to it (console.listen)"}
	}
	wrap := func(next http.RoundTripper) http.RoundTripper { return s.metrics.outgoing("notify", next) }
	n, err := notify.New(c.Notify, wrap)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(s.listeners.consoleURL); err == nil {
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() {
			c.Log.Warn("messages to approvers have links that only this host can open: set console.url", "url", s.listeners.consoleURL)
		}
	}
	return &peopleNotifier{Notifier: n, settings: c.Notify, server: s, console: s.listeners.consoleURL}, nil
}

// configure adds the notifications to the Access Request Service. A nil notifier adds none.
func (n *peopleNotifier) configure(service *approval.Config) {
	if n != nil {
		service.Recipients, service.Deliver, service.DigestAfter = n.recipients, n.deliver, n.settings.PerMinute
	}
}

// ways lists the ways that approval templates may name, or nil if nobody is notified.
func (n *peopleNotifier) ways() []string {
	if n == nil {
		return nil
	}
	return n.Names()
}

// recipients returns those who may decide on an item. A way that reaches persons has one recipient for
// each who has an address, and every other way has one.
func (n *peopleNotifier) recipients(ctx context.Context, a approval.Audience) (all []approval.Recipient, err error) {
	ways := a.Ways
	if ways == nil {
		ways = n.Personal()
	}
	var people []approval.Recipient
	if slices.ContainsFunc(ways, n.IsPersonal) {
		if people, err = n.people(ctx, a); err != nil {
			return nil, err
		}
	}
	for _, way := range ways {
		if !n.IsPersonal(way) {
			all = append(all, approval.Recipient{Way: way})
			continue
		}
		for _, one := range people {
			one.Way = way
			all = append(all, one)
		}
	}
	return all, nil
}

// people returns the persons whom policies permit one of the questions and who have an address.
func (n *peopleNotifier) people(ctx context.Context, a approval.Audience) (all []approval.Recipient, err error) {
	attribute := n.settings.EmailAttribute
	if attribute == "" {
		attribute = defaultEmailAttribute
	}
	kind := n.server.approverType()
	for _, question := range a.Questions {
		question.Subject = authzen.Subject{Type: kind}
		found, err := n.server.engine.PermittedSubjects(ctx, a.Tenant, question, attribute, maxDeciders)
		if err != nil {
			return nil, err
		}
		for _, one := range found {
			if one.Attribute == "" {
				continue
			}
			if err := notify.CheckAddress(one.Attribute); err != nil {
				if _, again := n.warned.LoadOrStore(one, true); again {
					continue
				}
				n.server.config.Log.Warn("an approver is not notified", "approver", kind+"::"+one.ID, "attribute", attribute, "error", err)
				continue
			}
			all = append(all, approval.Recipient{Address: one.Attribute, Person: &authzen.Subject{Type: kind, ID: one.ID}})
		}
	}
	return all, nil
}

// deliver sends a message and counts it.
func (n *peopleNotifier) deliver(ctx context.Context, d approval.Delivery) error {
	m := notify.Message{More: d.More}
	for _, one := range d.Announced {
		a, err := n.announcement(one)
		if err != nil {
			return err
		}
		m.Announcements = append(m.Announcements, a)
	}
	err := n.Send(ctx, d.Way, d.Address, &m)
	result := "sent"
	if err != nil {
		result = "failed"
	}
	n.server.metrics.notifications.Add(ctx, 1, metric.WithAttributes(attribute.String("way", d.Way), attribute.String("result", result)))
	return err
}

// announcement returns what a message says about an event of a request. Values that look like secrets are
// masked as in the log.
func (n *peopleNotifier) announcement(one approval.Announced) (a notify.Announcement, err error) {
	r := one.Request
	handler := approvalsHandler{mask: n.server.log.Mask}
	about, err := handler.summarized(r)
	if err != nil {
		return a, err
	}
	sheet, err := n.server.approvals.SheetOf(r)
	if err != nil {
		return a, fmt.Errorf("sheet: %w", err)
	}
	a = notify.Announcement{
		Event: one.Event, Task: r.ID, Status: string(r.Status()), Tenant: r.Tenant,
		Subject: notify.Entity{Type: r.Subject.Type, ID: r.Subject.ID},
		Action:  about.Action, Resource: notify.Entity{Type: about.Type, ID: about.ID}, MoreItems: len(r.Items) - 1,
		DecideBy: r.DecideBy, Sheet: sheet.Digest,
		Link: n.console + "/requests/" + url.PathEscape(r.ID),
	}
	for _, actor := range r.Actors {
		a.Actors = append(a.Actors, notify.Entity{ID: actor.ID})
	}
	if one.Event == approval.AnnounceEnd {
		for _, who := range r.Deciders() {
			a.DecidedBy = append(a.DecidedBy, notify.Entity{Type: who.Type, ID: who.ID})
		}
	}
	if n.settings.Arguments {
		a.Arguments = about.arguments()
	}
	return a, nil
}

// warnWays logs templates that notify people although the configuration has no way to do so.
func warnWays(log *slog.Logger, engine *evaluation.Engine) {
	for _, tenant := range append(engine.Status().Tenants, "") {
		s, err := engine.Snapshots().For(tenant)
		if err != nil {
			continue
		}
		for name, template := range s.Templates {
			if len(template.Notify) > 0 {
				log.Warn("an approval template notifies people, and console.notify is not configured", "template", name, "tenant", tenant, "ways", template.Notify)
			}
		}
	}
}

// SendTestMessage sends a message by each of some ways, or by all if names is empty. It calls report with
// each result. to is the recipient of the ways that reach persons.
func SendTestMessage(ctx context.Context, s notify.Settings, names []string, to string, report func(way string, err error)) error {
	n, err := notify.New(s, nil)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = n.Names()
	}
	m := &notify.Message{Test: true}
	var errs []error
	for _, name := range names {
		if !n.IsPersonal(name) {
			err = n.Send(ctx, name, "", m)
		} else if to == "" {
			err = errors.New("sends to persons: name one with --to")
		} else {
			err = n.Send(ctx, name, to, m)
		}
		report(name, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
