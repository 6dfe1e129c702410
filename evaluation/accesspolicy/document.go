package accesspolicy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/obligations/plain"
)

// The modes of a document.
const (
	Allowlist = "allowlist" // rules permit, nothing else does
	Denylist  = "denylist"  // rules forbid, everything else is permitted
	Open      = "open"      // everything is permitted
	Hybrid    = "hybrid"    // the default applies unless a rule does
)

// The effects of a rule, and of a default.
const (
	Allow = "allow"
	Deny  = "deny"
)

const (
	maxRules = 1000 // of a document
	maxTools = 256  // of a rule
	maxName  = 256  // bytes of an agent or a tool
)

// A Document is an access document: who may call the tools of a server.
type Document struct {
	File    string // path in the store
	Server  string
	Mode    string
	Default string // effect for calls that no rule is about
	Rules   []Rule

	Line, Column int // of the mode
}

// A Rule is a rule of a document.
type Rule struct {
	Agent      string    // as written
	Tools      []string  // names without the server; nil for every tool of the server
	Effect     string    // allow or deny
	Expires    time.Time // the zero time for never
	Approval   bool      // each call needs an approval
	Capability bool      // calls need a capability

	Line, Column int // of the rule
	places       map[string]place
}

// A place is the line and column of a member of a rule.
type place struct{ line, column int }

// Name returns the name of the document: its file name without the extension.
func (d *Document) Name() string { return strings.TrimSuffix(path.Base(d.File), path.Ext(d.File)) }

// Template returns the name of the template by which calls are approved.
func (d *Document) Template() string { return "access-" + d.Name() }

// Expires reports whether a rule has an end.
func (d *Document) Expires() bool {
	return slices.ContainsFunc(d.Rules, func(r Rule) bool { return !r.Expires.IsZero() })
}

// Needs reports whether the policies of the document read a fact of the context: capability, or
// approval.
func (d *Document) Needs(fact string) bool {
	return slices.ContainsFunc(d.Rules, func(r Rule) bool {
		return fact == "capability" && r.Capability || fact == "approval" && r.Approval && d.Default == Allow
	})
}

// A parser collects the faults of a document.
type parser struct {
	file   string
	src    []byte
	faults faults.List
}

// Parse reads a document. It returns nil if the document has faults.
func Parse(file string, src []byte) (*Document, faults.List) {
	p := parser{file: file, src: src}
	root, at, err := readTree(src)
	if err != nil {
		p.fault(at, faults.JSONMessage(err), commentHint(src, at))
		return nil, p.faults
	}
	d := &Document{File: file}
	d.Server = d.Name()
	if policy := p.envelope(root, d); policy != nil {
		p.policy(policy, d)
	}
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	return d, nil
}

// commentHint returns the hint for a comment at an offset, or "".
func commentHint(src []byte, at int64) string {
	if at < int64(len(src)) && src[at] == '/' {
		return "JSON has no comments"
	}
	return ""
}

func (p *parser) fault(at int64, message, hint string) {
	line, column := faults.LineAndColumn(p.src, at)
	p.faults = append(p.faults, faults.Fault{File: p.file, Line: line, Column: column, Message: message, Hint: hint})
}

func (p *parser) place(at int64) place {
	line, column := faults.LineAndColumn(p.src, at)
	return place{line, column}
}

// object checks that a value is an object, and reports its unknown members.
func (p *parser) object(n *node, what string, known ...string) bool {
	if n.kind != '{' {
		p.fault(n.at, what+" must be an object", "")
		return false
	}
	for _, m := range n.members {
		if !slices.Contains(known, m.name) {
			p.fault(m.at, fmt.Sprintf("%s has no member %q; known are %s", what, m.name, strings.Join(slices.DeleteFunc(slices.Clone(known), func(name string) bool { return name == schemaMember }), ", ")), meant(m.name, known))
		}
	}
	return true
}

// meant returns the hint for a misspelled word.
func meant(word string, known []string) string {
	for _, name := range known {
		if strings.EqualFold(word, name) {
			return fmt.Sprintf("did you mean %q?", name)
		}
	}
	return faults.SpellingHint(word, known)
}

// Members of the policy of a document.
var policyMembers = []string{"mode", "default", "rules"}

// envelope reads the members around the policy, and returns the policy. The members of the policy may
// also be those of the document itself.
func (p *parser) envelope(root *node, d *Document) *node {
	bare := root.named("policy") == nil && (root.named("mode") != nil || root.named("rules") != nil)
	if bare {
		if !p.object(root, "the document", append([]string{"server", schemaMember}, policyMembers...)...) {
			return nil
		}
		p.head(root, d)
		return root
	}
	if !p.object(root, "the document", "server", "type", "policy", schemaMember) {
		return nil
	}
	p.head(root, d)
	if m := root.named("type"); m != nil && m.value.text != "tool_access_policy" {
		p.fault(m.value.at, `type must be "tool_access_policy"`, "")
	}
	m := root.named("policy")
	if m == nil && len(p.faults) > 0 {
		return nil // it may be the member of another name
	}
	if m == nil {
		p.fault(root.at, "the document has no policy", `write {"policy": {"mode": …, "rules": […]}}`)
		return nil
	}
	if !p.object(m.value, "the policy", policyMembers...) {
		return nil
	}
	return m.value
}

// schemaMember names the JSON Schema by which an editor checks the document. It says nothing else.
const schemaMember = "$schema"

// head reads the members that a document has in either form.
func (p *parser) head(root *node, d *Document) {
	if m := root.named(schemaMember); m != nil && m.value.kind != '"' {
		p.fault(m.value.at, schemaMember+" must be a string", "")
	}
	m := root.named("server")
	if m == nil {
		return
	}
	if m.value.kind != '"' {
		p.fault(m.value.at, "server must be a string", "")
		return
	}
	d.Server = m.value.text
	if why := unusable(d.Server); why != "" || strings.ContainsAny(d.Server, ":*") {
		p.fault(m.value.at, fmt.Sprintf("%q cannot be the name of a server%s", d.Server, why), "")
	}
}

// unusable says why a name cannot be one, or returns "".
func unusable(name string) string {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Sprintf(": it must have 1 to %d bytes", maxName)
	case strings.ReplaceAll(plain.Text(name), `\\`, `\`) != name:
		return ": it has invisible characters"
	case len(plain.Mixed(name)) > 0:
		return ": it mixes letters that look alike"
	case strings.TrimSpace(name) != name:
		return ": it begins or ends with a blank"
	}
	return ""
}

// policy reads the policy of a document.
func (p *parser) policy(n *node, d *Document) {
	mode := p.word(n, "mode", Allowlist, Denylist, Open, Hybrid)
	preset := p.word(n, "default", Allow, Deny)
	rules := n.named("rules")
	switch m := n.named("mode"); {
	case m == nil:
		p.fault(n.at, "the policy has no mode", "write one of "+strings.Join([]string{Allowlist, Denylist, Open, Hybrid}, ", "))
	case mode != "":
		at := p.place(m.at)
		d.Mode, d.Line, d.Column = mode, at.line, at.column
		p.preset(n, m, preset, d)
	}
	if rules != nil {
		p.rules(rules, d)
	} else if d.Mode == Allowlist || d.Mode == Denylist {
		p.fault(n.at, "mode "+d.Mode+": the policy has no rules", `without any, write "rules": []`)
	}
}

// word reads a member that has one of some values. It returns "" for none.
func (p *parser) word(n *node, name string, known ...string) string {
	m := n.named(name)
	switch {
	case m == nil:
		return ""
	case m.value.kind != '"':
		p.fault(m.value.at, name+" must be one of "+strings.Join(known, ", "), "")
		return ""
	case !slices.Contains(known, m.value.text):
		p.fault(m.value.at, fmt.Sprintf("%s: %q is not one of %s", name, m.value.text, strings.Join(known, ", ")), meant(m.value.text, known))
		return ""
	}
	return m.value.text
}

// preset checks the default against the mode. Hybrid alone leaves a choice.
func (p *parser) preset(n *node, mode *member, preset string, d *Document) {
	only := map[string]string{Allowlist: Deny, Denylist: Allow, Open: Allow}[d.Mode]
	m := n.named("default")
	switch {
	case m == nil && only == "":
		p.fault(mode.at, "mode hybrid: the policy has no default", "write allow or deny")
	case m != nil && preset != "" && only != "" && preset != only:
		p.fault(m.value.at, fmt.Sprintf("mode %s: the default is %s, not %s", d.Mode, only, preset), "mode hybrid has either default")
	}
	d.Default = preset
	if only != "" {
		d.Default = only
	}
}

// rules reads the rules of a document.
func (p *parser) rules(m *member, d *Document) {
	switch n := len(m.value.elements); {
	case m.value.kind != '[':
		p.fault(m.value.at, "rules must be an array", "")
		return
	case n > maxRules:
		p.fault(m.value.at, fmt.Sprintf("there are more than %d rules", maxRules), "give groups of participants a rule, or divide the tools")
		return
	case n > 0 && d.Mode == Open:
		p.fault(m.value.elements[0].at, "mode open has no rules", "mode denylist forbids some calls, mode hybrid has exceptions")
		return
	}
	for _, element := range m.value.elements {
		if r, ok := p.rule(element, d); ok {
			d.Rules = append(d.Rules, r)
		}
	}
}
