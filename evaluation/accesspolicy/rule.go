package accesspolicy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ruleMembers are the members of a rule.
var ruleMembers = []string{"agent", "tools", "expires", "requires_approval", "requires_capability", "effect"}

// rule reads a rule.
func (p *parser) rule(n *node, d *Document) (r Rule, ok bool) {
	before := len(p.faults)
	if !p.object(n, "a rule", ruleMembers...) {
		return r, false
	}
	at := p.place(n.at)
	r = Rule{Line: at.line, Column: at.column, places: map[string]place{}}
	for _, m := range n.members {
		r.places[m.name] = p.place(m.value.at)
	}
	r.Agent = p.agent(n)
	r.Tools = p.tools(n, d.Server)
	r.Approval = p.flag(n, "requires_approval")
	r.Capability = p.flag(n, "requires_capability")
	r.Expires = p.expires(n)
	r.Effect = p.word(n, "effect", Allow, Deny)
	if d.Mode != "" && len(p.faults) == before {
		p.effect(n, d, &r)
	}
	return r, len(p.faults) == before
}

// agent reads who a rule is about.
func (p *parser) agent(n *node) string {
	m := n.named("agent")
	switch {
	case m == nil:
		p.fault(n.at, "the rule has no agent", `write "agent": "TYPE:ID", or "*" for everybody`)
		return ""
	case m.value.kind != '"':
		p.fault(m.value.at, "agent must be a string", "write a rule for each agent, or for a group of them")
		return ""
	}
	name := m.value.text
	if why := unusable(name); why != "" {
		p.fault(m.value.at, fmt.Sprintf("%q cannot be an agent%s", name, why), "")
	}
	if strings.Contains(strings.TrimSuffix(name, ":*"), "*") && name != "*" {
		p.fault(m.value.at, fmt.Sprintf("agent: %q is a pattern, and rules have none", name), `"*" is everybody, and "TYPE:*" everybody of a type`)
	}
	return name
}

// tools reads the tools of a rule, without the server. It returns nil for all.
func (p *parser) tools(n *node, server string) []string {
	m := n.named("tools")
	switch {
	case m == nil:
		p.fault(n.at, "the rule has no tools", `write "tools": ["NAME"], or "*" for every tool of the server`)
		return nil
	case m.value.kind == '"' && (m.value.text == "*" || m.value.text == server+":*"):
		return nil
	case m.value.kind != '[':
		p.fault(m.value.at, `tools must be an array of names, or "*"`, "")
		return nil
	case len(m.value.elements) == 0:
		p.fault(m.value.at, "tools has no names", `write "*" for every tool of the server`)
		return nil
	case len(m.value.elements) > maxTools:
		p.fault(m.value.at, fmt.Sprintf("a rule has more than %d tools", maxTools), "divide it")
		return nil
	}
	var all []string
	for _, element := range m.value.elements {
		name, ok := p.tool(element, server)
		if ok && slices.Contains(all, name) {
			p.fault(element.at, fmt.Sprintf("the tool %q is named twice", name), "")
		}
		all = append(all, name)
	}
	return all
}

// tool reads the name of a tool: TOOL or SERVER:TOOL.
func (p *parser) tool(n *node, server string) (name string, ok bool) {
	if n.kind != '"' {
		p.fault(n.at, "the name of a tool must be a string", "")
		return "", false
	}
	name = n.text
	if of, tool, found := strings.Cut(name, ":"); found {
		if of != server {
			p.fault(n.at, fmt.Sprintf("%q is a tool of another server than %s", name, server), "write a document for each server")
			return "", false
		}
		name = tool
	}
	if why := unusable(name); why != "" {
		p.fault(n.at, fmt.Sprintf("%q cannot be the name of a tool%s", n.text, why), "")
		return "", false
	}
	if strings.Contains(name, "*") {
		p.fault(n.at, fmt.Sprintf("%q is a pattern, and rules have none", n.text), `"tools": "*" is every tool of the server`)
		return "", false
	}
	return name, true
}

func (p *parser) flag(n *node, name string) bool {
	m := n.named(name)
	if m != nil && m.value.kind != 't' && m.value.kind != 'f' {
		p.fault(m.value.at, name+" must be true or false", "")
	}
	return m != nil && m.value.kind == 't'
}

// expires reads the end of a rule. Cedar knows milliseconds.
func (p *parser) expires(n *node) time.Time {
	m := n.named("expires")
	if m == nil {
		return time.Time{}
	}
	end, err := time.Parse(time.RFC3339, m.value.text)
	switch {
	case m.value.kind != '"' || err != nil:
		p.fault(m.value.at, "expires must be a time as in 2026-01-31T12:00:00Z", "")
	case end.Nanosecond()%int(time.Millisecond) != 0:
		p.fault(m.value.at, "expires is more exact than a millisecond", "")
	case end.UTC().Year() < 1 || end.UTC().Year() > 9999:
		p.fault(m.value.at, "expires is out of range", "")
	}
	return end.UTC()
}

// effect gives a rule the effect of its mode, and reports members that would have no effect.
func (p *parser) effect(n *node, d *Document, r *Rule) {
	only := map[string]string{Allowlist: Allow, Denylist: Deny}[d.Mode]
	if m := n.named("effect"); m != nil && only != "" && r.Effect != only {
		p.fault(m.value.at, fmt.Sprintf("mode %s: the effect of a rule is %s", d.Mode, only), "mode hybrid has rules of both effects")
		return
	}
	if r.Effect == "" {
		r.Effect = Allow
	}
	if only != "" {
		r.Effect = only
	}
	needs := r.Approval || r.Capability
	switch {
	case r.Effect == Deny && needs:
		p.fault(n.at, "a rule that denies requires nothing", "remove requires_approval and requires_capability")
	case r.Effect == Allow && d.Default == Allow && !needs:
		p.fault(n.at, "the rule has no effect: the default is allow", `a rule with "effect": "deny" is an exception`)
	case r.Effect == Allow && d.Default == Allow && !r.Expires.IsZero():
		p.fault(n.at, "after its end the rule would require nothing: the default is allow", "remove expires")
	}
}

// names returns the names of the tools, or * for all.
func (r *Rule) names() []string {
	if r.Tools == nil {
		return []string{"*"}
	}
	return r.Tools
}

// sharesTool reports whether two rules are about the same tool.
func (r *Rule) sharesTool(o *Rule) bool {
	return r.Tools == nil || o.Tools == nil || slices.ContainsFunc(r.Tools, func(name string) bool { return slices.Contains(o.Tools, name) })
}
