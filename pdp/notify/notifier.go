package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/mail"
	"slices"
	"time"

	"github.com/policy-service/policy-service/pdp/webhook"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// sendTime is the time limit of one message.
const sendTime = 30 * time.Second

// A Notifier sends messages. It is safe for concurrent use.
type Notifier struct {
	names []string
	ways  map[string]way
}

// A way sends messages to an address, which is "" unless the way reaches persons.
type way interface {
	send(ctx context.Context, to string, m *Message) error
}

// New returns a notifier. wrap wraps the transport of HTTP requests; nil does not. It reads the files and
// variables that the settings name. The error has a [yamldoc.SettingError] for each fault.
func New(s Settings, wrap func(http.RoundTripper) http.RoundTripper) (*Notifier, error) {
	if err := s.checkSecrets(); err != nil {
		return nil, yamldoc.Below(err, "console", "notify")
	}
	client, err := webhook.New(webhook.Config{PrivateHosts: slices.Concat(s.PrivateHosts, s.thisHost()), Transport: wrap})
	if err != nil {
		return nil, err
	}
	n := &Notifier{names: s.names(), ways: map[string]way{}}
	for _, m := range s.Mail {
		n.ways[m.Name] = mailer(m)
	}
	for _, c := range s.Slack {
		n.ways[c.Name] = chat{client, c.Location, slackBody}
	}
	for _, c := range s.Mattermost {
		n.ways[c.Name] = chat{client, c.Location, mattermostBody}
	}
	for _, t := range s.Ntfy {
		n.ways[t.Name] = topic{client, t}
	}
	for _, w := range s.Webhook {
		n.ways[w.Name] = signed{client, w}
	}
	return n, nil
}

// Names lists the names of the ways.
func (n *Notifier) Names() []string { return n.names }

// Personal lists the ways that reach persons at their own addresses.
func (n *Notifier) Personal() (names []string) {
	for _, name := range n.names {
		if n.IsPersonal(name) {
			names = append(names, name)
		}
	}
	return names
}

// IsPersonal reports whether a way reaches persons at their own addresses.
func (n *Notifier) IsPersonal(name string) bool {
	_, is := n.ways[name].(mailer)
	return is
}

// Send sends a message to an address, which is "" unless the way is personal.
func (n *Notifier) Send(ctx context.Context, name, to string, m *Message) error {
	w := n.ways[name]
	if w == nil {
		return fmt.Errorf("there is no way %q", name)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	if err := w.send(ctx, to, m); err != nil {
		if errors.Is(err, webhook.ErrPrivate) {
			err = fmt.Errorf("%w: if that is right, name the host of the URL in console.notify.private_hosts", err)
		}
		return fmt.Errorf("notify by %s: %w", name, err)
	}
	return nil
}

// CheckAddress refuses text that is not exactly one address of mail.
func CheckAddress(text string) error {
	a, err := mail.ParseAddress(text)
	if err != nil || a.Name != "" || a.Address != text {
		return fmt.Errorf("%.100q is not an address of mail", text)
	}
	return nil
}
