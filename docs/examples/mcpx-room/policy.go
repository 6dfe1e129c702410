package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An accessPolicy is what an owner declares about its tools (ADR-003). It narrows what policies of the
// PDP permit, and never widens it.
type accessPolicy struct {
	Topic   string       `json:"topic,omitzero"`
	Owner   string       `json:"owner,omitzero"`
	Mode    string       `json:"mode"`             // open, allowlist, denylist or hybrid
	Default access       `json:"default,omitzero"` // of hybrid; the others need not say it
	Rules   []accessRule `json:"rules"`
}

type accessRule struct {
	Agent            string         `json:"agent"`
	Tools            jsontext.Value `json:"tools"` // names, or "*"
	Expires          time.Time      `json:"expires,omitzero"`
	RequiresApproval bool           `json:"requires_approval,omitzero"`
	Effect           access         `json:"effect,omitzero"` // of hybrid: allow, which is the default, or deny
}

type policyKey struct{ topic, owner string }

func (p *accessPolicy) key() policyKey { return policyKey{p.Topic, p.Owner} }

// An access is what an owner has declared about a call; "" if nothing.
type access string

const (
	accessAllow    access = "allow"
	accessDeny     access = "deny"
	accessApproval access = "approval" // of each call
)

// Modes of an access policy.
const (
	modeOpen      = "open"
	modeAllowlist = "allowlist"
	modeDenylist  = "denylist"
	modeHybrid    = "hybrid"
)

// maxRules bounds an access policy.
const maxRules = 100

// declare keeps the access policy of a member, and tells everybody else.
func (r *Room) declare(in *received) error {
	var payload struct {
		Type   string        `json:"type"`
		Policy *accessPolicy `json:"policy"`
	}
	if err := json.Unmarshal(in.env.Payload, &payload, json.RejectUnknownMembers(true)); err != nil {
		return invalid("the payload is no tool_access_policy: %v", err)
	}
	p := payload.Policy
	if payload.Type != "tool_access_policy" || p == nil {
		return invalid("a participant's only system message is tool_access_policy")
	}
	if err := p.check(); err != nil {
		return err
	}
	p.Topic, p.Owner = in.topic, in.ID
	r.mu.Lock()
	err := r.store.putPolicy(p)
	if err == nil {
		r.policies[p.key()] = p
	}
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("keep the policy: %w", err)
	}
	r.forward(in.member, in.env)
	return nil
}

func (p *accessPolicy) check() error {
	switch {
	case p.Topic != "" || p.Owner != "":
		return invalid("a policy has mode, default and rules")
	case !slices.Contains([]string{modeOpen, modeAllowlist, modeDenylist, modeHybrid}, p.Mode):
		return invalid("mode must be open, allowlist, denylist or hybrid")
	case p.Mode == modeHybrid && p.Default != accessAllow && p.Default != accessDeny:
		return invalid("default must be allow or deny")
	case p.Mode != modeHybrid && p.Default != "" && p.Default != p.otherwise():
		return invalid("default must be %s in this mode", p.otherwise())
	case len(p.Rules) > maxRules:
		return invalid("there are more than %d rules", maxRules)
	}
	for i, rule := range p.Rules {
		if err := p.checkRule(&rule); err != nil {
			return invalid("rules/%d %v", i, err)
		}
	}
	return nil
}

func (p *accessPolicy) checkRule(rule *accessRule) error {
	_, err := rule.tools()
	switch {
	case err != nil || rule.Agent == "":
		return errors.New("needs an agent, and tools: names or \"*\"")
	case rule.Effect != "" && (p.Mode != modeHybrid || rule.Effect != accessAllow && rule.Effect != accessDeny):
		return errors.New("has an effect that is not allow or deny in mode hybrid")
	case rule.RequiresApproval && (p.Mode == modeDenylist || rule.Effect == accessDeny):
		return errors.New("denies, and wants an approval")
	}
	return nil
}

// tools returns the names of a rule; none means all.
func (a *accessRule) tools() (names []string, err error) {
	if string(a.Tools) == `"*"` {
		return nil, nil
	}
	if err := json.Unmarshal(a.Tools, &names); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there are no tools")
	}
	return names, nil
}

func (a *accessRule) covers(agent, tool string, now time.Time) bool {
	names, err := a.tools()
	return err == nil && a.Agent == agent && (names == nil || slices.Contains(names, tool)) && (a.Expires.IsZero() || now.Before(a.Expires))
}

// of returns what the policy says of a call. A rule that denies wins; of the others, one without approval.
func (p *accessPolicy) of(agent, tool string, now time.Time) (found access) {
	for _, rule := range p.Rules {
		switch {
		case !rule.covers(agent, tool, now):
		case p.Mode == modeDenylist || rule.Effect == accessDeny:
			return accessDeny
		case !rule.RequiresApproval:
			found = accessAllow
		case found == "":
			found = accessApproval
		}
	}
	if found == "" {
		return p.otherwise()
	}
	return found
}

// otherwise is what the policy says of calls that no rule covers.
func (p *accessPolicy) otherwise() access {
	switch p.Mode {
	case modeAllowlist:
		return accessDeny
	case modeHybrid:
		return p.Default
	}
	return accessAllow
}

// access returns what the owner of a call has declared about it.
func (r *Room) access(c *call) access {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.policies[policyKey{c.Topic, c.Owner}]
	if p == nil {
		return ""
	}
	return p.of(c.Requester, c.Tool, time.Now())
}
