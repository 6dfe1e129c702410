package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/enforce"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

var errMayNotAsk = errors.New("the server asks its client what it may not")

// asks is what a server may ask its clients: to show a form or a page, to have a
// model say something, for directories.
type asks struct {
	// Requests are the methods of what it may ask; nil is all, whatever they are.
	Requests []string `yaml:"requests"`
	// Pages are the origins of those that it may lead people to; nil is any.
	Pages []string `yaml:"pages"`
}

// may reports whether a request is one that the server may make.
func (a *asks) may(method string, params jsontext.Value) bool {
	if a.Requests != nil && !slices.Contains(a.Requests, method) {
		return false
	}
	if method != wire.MethodElicitation {
		return true
	}
	var shown struct {
		Mode string `json:"mode"`
		URL  string `json:"url"`
	}
	if params != nil && json.Unmarshal(params, &shown) != nil {
		return false
	}
	switch shown.Mode {
	case "", "form":
		return shown.URL == "" || a.leads(shown.URL)
	case "url":
		return shown.URL != "" && a.leads(shown.URL)
	}
	return false // nobody knows where it leads
}

// leads reports whether a page is one that the server may lead people to.
func (a *asks) leads(page string) bool {
	if a.Pages == nil {
		return true
	}
	u, err := url.Parse(page)
	return err == nil && slices.Contains(a.Pages, u.Scheme+"://"+u.Host)
}

// fits returns an error of a response by which the server asks what it may not:
// in 2026-07-28 it asks by results that want another call, before that also by an
// error, which may be that of a task.
func (a *asks) fits(m *wire.Message) error {
	if m.Error != nil {
		return a.fitsError(m.Error)
	}
	var asked struct {
		Requests map[string]struct {
			Method string         `json:"method"`
			Params jsontext.Value `json:"params"`
		} `json:"inputRequests"`
		Error jsontext.Value `json:"error"`
	}
	if err := json.Unmarshal(m.Result, &asked); err != nil {
		return fmt.Errorf("read what the server asks: %w", err)
	}
	for _, r := range asked.Requests {
		if !a.may(r.Method, r.Params) {
			return fmt.Errorf("%w: %s", errMayNotAsk, r.Method)
		}
	}
	return a.fitsError(asked.Error)
}

// fitsError is fits for an error.
func (a *asks) fitsError(e jsontext.Value) error {
	if !wire.IsPageError(e) {
		return nil
	}
	var asked struct {
		Data struct {
			Elicitations []jsontext.Value `json:"elicitations"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e, &asked); err != nil {
		return fmt.Errorf("read what the server asks: %w", err)
	}
	for _, params := range asked.Data.Elicitations {
		if !a.may(wire.MethodElicitation, params) {
			return fmt.Errorf("%w: %s", errMayNotAsk, wire.MethodElicitation)
		}
	}
	return nil
}

// tells reports whether a notification asks nothing that the server may not: how a
// task stands says what it waits for.
func (a *asks) tells(m *wire.Message) bool {
	return m.Params == nil || a.fits(&wire.Message{Result: m.Params}) == nil
}

// answered is that of [enforce.Config.Answered].
func (g *gateway) answered(ctx context.Context, c *enforce.Call, m *wire.Message) (*wire.Message, error) {
	if err := g.asks[c.Server].fits(m); err != nil || m.Result == nil {
		return m, err
	}
	result, err := g.owners.Answered(ctx, c, m.Result)
	return &wire.Message{ID: m.ID, Result: result}, err
}
