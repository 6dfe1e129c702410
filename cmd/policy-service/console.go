package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/pdp/notify"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// consoleFlags configure the console.
type consoleFlags struct {
	Listen      string        `help:"Address of the console, the pages for people. Default: ${default}, or the next free port. The empty address is no console." default:"127.0.0.1:8082" placeholder:"HOST:PORT"`
	URL         string        `name:"url" help:"URL of the console for browsers. Default: its address." placeholder:"URL"`
	TLSCert     string        `help:"PEM certificate chain of the console." placeholder:"FILE"`
	TLSKey      string        `help:"PEM key of the console." placeholder:"FILE"`
	BehindProxy bool          `help:"A proxy before the console terminates TLS. Requires --console.url."`
	SessionIdle time.Duration `help:"Time without a request after which a session of the console ends. Default: ${default}." default:"15m" some:"" placeholder:"DURATION"`
	SessionMost time.Duration `help:"Time after which every session of the console ends. Default: ${default}." default:"8h" some:"" placeholder:"DURATION"`
	Notify      notifyFlag    `help:"Notifications of those who may decide, as YAML: see docs/reference/configuration.md. It belongs in the file of --config." placeholder:"YAML"`
	Links       *bool         `help:"Let people sign in by a link of \"policy-service console\", with every scope and without step-up. Default: only without console.oidc."`
	OIDC        oidcFlag      `name:"oidc" help:"Sign-in at an OpenID provider, as YAML: see docs/reference/configuration.md. It belongs in the file of --config." placeholder:"YAML"`
}

func (f *consoleFlags) settings() console.Settings {
	return console.Settings{
		Listen: f.Listen, URL: f.URL, TLSCert: f.TLSCert, TLSKey: f.TLSKey, BehindProxy: f.BehindProxy,
		SessionIdle: f.SessionIdle, SessionMost: f.SessionMost, OIDC: f.OIDC.settings(), Links: f.Links,
	}
}

// notifyFlag reads how people are notified.
type notifyFlag struct {
	notify.Settings `yaml:",inline"`
}

// Decode reads YAML, or the value in the configuration file.
func (f *notifyFlag) Decode(ctx *kong.DecodeContext) error {
	return decodeDocument(ctx, "--console.notify", f.read)
}

func (f *notifyFlag) read(doc *yamldoc.Document) []yamldoc.Fault {
	return doc.Settings(doc.Decode(&f.Settings), f.Check())
}

// oidcFlag reads how people sign in at an OpenID provider.
type oidcFlag struct {
	console.OIDC `yaml:",inline"`
}

// settings returns nil without a provider.
func (o oidcFlag) settings() *console.OIDC {
	if o.Issuer == "" {
		return nil
	}
	return &o.OIDC
}

// Decode reads YAML, or the value in the configuration file.
func (o *oidcFlag) Decode(ctx *kong.DecodeContext) error {
	return decodeDocument(ctx, "--console.oidc", o.read)
}

func (o *oidcFlag) read(doc *yamldoc.Document) []yamldoc.Fault {
	return doc.Settings(doc.Decode(&o.OIDC), o.Check())
}

type consoleCmd struct {
	As    entityID `help:"The person, as policies know them." required:"" placeholder:"TYPE:ID"`
	State string   `help:"State directory of the running server. Default: ${default}." default:"policy-service-state" placeholder:"DIR"`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// Help explains the link.
func (c *consoleCmd) Help() string {
	return "The link is good once, within a minute, on this host. Whoever can read the state directory can sign in as anybody, " +
		"to approve, to audit and to operate; the log says that the person came by a link. Where people sign in by OpenID Connect (console.oidc), the console refuses links unless console.links is true."
}

// Run prints a link that signs a person in.
func (c *consoleCmd) Run(context.Context) error {
	link, err := console.Link(c.State, authzen.Subject{Type: c.As.Type, ID: c.As.ID}, time.Now())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(map[string]string{"url": link})
	}
	_, err = fmt.Println(link)
	return err
}
