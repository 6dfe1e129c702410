package notify

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/pdp/webhook"
)

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// A chat is an incoming webhook with a body in the form of its service.
type chat struct {
	client *webhook.Client
	at     Location
	body   func(*Message) any
}

func (c chat) send(ctx context.Context, _ string, m *Message) error {
	url, err := c.at.read()
	if err != nil {
		return err
	}
	return post(ctx, c.client, url, jsonHeader, c.body(m))
}

// slackBody returns a message for an incoming webhook of Slack. Slack makes no links of its own in it,
// and shows no previews.
func slackBody(m *Message) any {
	return struct {
		Text   string `json:"text"`
		Parse  string `json:"parse"`
		Links  bool   `json:"unfurl_links"`
		Media  bool   `json:"unfurl_media"`
		Markup bool   `json:"mrkdwn"`
	}{Text: m.chatText(slack), Parse: "none", Markup: true}
}

// slack is the markup of Slack, mrkdwn.
var slack = markup{
	bold: func(text string) string { return "*" + text + "*" },
	code: codeSpan,
	link: func(url string) string { return "<" + strings.ReplaceAll(url, "&", "&amp;") + ">" },
}

// mattermost is the markup of Mattermost, Markdown.
var mattermost = markup{
	bold: func(text string) string { return "**" + text + "**" },
	code: codeSpan,
	link: unmarked,
}

// mattermostBody returns a message for an incoming webhook of Mattermost.
func mattermostBody(m *Message) any {
	return struct {
		Text string `json:"text"`
	}{m.chatText(mattermost)}
}

// chatText returns a message whose heading is bold and whose values are code.
func (m *Message) chatText(in markup) string {
	heading := m.title()
	if m.single() {
		heading = m.Announcements[0].heading()
	}
	return in.bold(heading) + "\n" + m.text(in)
}

// A topic publishes to ntfy, as JSON.
type topic struct {
	client *webhook.Client
	to     Topic
}

// Priorities of ntfy.
const (
	priorityDefault = 3
	priorityHigh    = 4
)

func (t topic) send(ctx context.Context, _ string, m *Message) error {
	server, name, err := t.to.topic()
	if err != nil {
		return err
	}
	header := jsonHeader.Clone()
	token, err := readSecret(t.to.TokenFile)
	if err != nil {
		return err
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	body := struct {
		Topic    string `json:"topic"`
		Title    string `json:"title"`
		Message  string `json:"message"`
		Priority int    `json:"priority"`
		Click    string `json:"click,omitzero"`
	}{Topic: name, Title: m.title(), Message: m.text(noMarkup), Priority: priorityDefault}
	if m.single() {
		a := m.Announcements[0]
		body.Click = a.Link
		if a.Event == approval.AnnounceEscalate || a.Event == approval.AnnounceRemind {
			body.Priority = priorityHigh
		}
	}
	return post(ctx, t.client, server, header, body)
}

// A signed posts the announcements to a webhook, for programs.
type signed struct {
	client *webhook.Client
	to     Webhook
}

// A WebhookBody is the body of a request to a webhook.
type WebhookBody struct {
	ID            string         `json:"id"`            // the same for a message that is sent again
	Test          bool           `json:"test,omitzero"` // there are no announcements
	Announcements []Announcement `json:"announcements"`
	More          int            `json:"more,omitzero"` // announcements that are left out
}

func (s signed) send(ctx context.Context, _ string, m *Message) error {
	url, err := s.to.read()
	if err != nil {
		return err
	}
	secret, err := s.to.secret()
	if err != nil {
		return err
	}
	body, err := json.Marshal(WebhookBody{m.id(s.to.Name), m.Test, m.Announcements, m.More})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	return s.client.PostSigned(ctx, url, []byte(secret), body)
}

func post(ctx context.Context, client *webhook.Client, url string, header http.Header, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	return client.Post(ctx, url, header, text)
}
