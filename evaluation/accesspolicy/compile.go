package accesspolicy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/policy-service/policy-service/evaluation/faults"
)

// CalledTool is the context member with the tool that a request is about, as SERVER:TOOL.
const CalledTool = "called_tool"

// Terms are what policies are made of: the names that a store uses.
type Terms struct {
	Calls    []types.EntityUID // actions that call a tool, or groups of them
	Requests []types.EntityUID // actions that ask somebody else to call one; rules may only forbid them
	Clock    string            // context member with the time; "" for none
	// Principal returns who an agent is. The error is for the author of the document; its hint may be "".
	Principal func(agent string) (p Principal, hint string, err error)
}

// A Principal is who a rule is about: an entity, a group, a type, or everybody.
type Principal struct {
	Entity types.EntityUID
	Type   types.EntityType // everybody of a type, if there is no entity
	Group  bool             // the entity has members
}

// String returns the principal as people write it.
func (p Principal) String() string {
	switch {
	case p.Entity.Type != "" && p.Group:
		return "in " + p.Entity.String()
	case p.Entity.Type != "":
		return p.Entity.String()
	case p.Type != "":
		return "every " + string(p.Type)
	}
	return "everybody"
}

// A Policy is a Cedar policy of a document.
type Policy struct {
	ID           string
	Text         []byte // in Cedar
	Line, Column int    // of the rule
}

// A Row describes a rule, or the default, for people.
type Row struct {
	Policy string    `json:"policy"` // id of the rule's policy
	File   string    `json:"file"`
	Line   int       `json:"line"`
	Server string    `json:"server"`
	Effect string    `json:"effect"`
	Who    string    `json:"who"`
	Tools  []string  `json:"tools"` // SERVER:TOOL, or SERVER:*
	Until  time.Time `json:"until,omitzero"`
	Needs  []string  `json:"needs,omitempty"`
	Cedar  string    `json:"cedar"` // every policy of the rule
}

// Fault returns a fault at a member of the rule, or at the rule.
func (r *Rule) Fault(file, member, message, hint string) faults.Fault {
	at, found := r.places[member]
	if !found {
		at = place{r.Line, r.Column}
	}
	return faults.Fault{File: file, Line: at.line, Column: at.column, Message: message, Hint: hint}
}

// A compiler compiles a document.
type compiler struct {
	*Document
	Terms
	who      []Principal // of the rules so far
	policies []Policy
	rows     []Row
	faults   faults.List
}

// Compile returns the policies of a document and a row for each rule. It returns faults alone if a rule
// does not fit the store.
func (d *Document) Compile(t Terms) ([]Policy, []Row, faults.List) {
	c := compiler{Document: d, Terms: t}
	for i := range d.Rules {
		c.rule(&d.Rules[i], fmt.Sprintf("%s#%d", strings.TrimSuffix(d.File, ".json"), i))
	}
	if d.Default == Deny && len(c.faults) == 0 {
		c.checkApprovals()
	}
	if d.Default == Allow {
		c.everything()
	}
	if len(c.faults) > 0 {
		return nil, nil, c.faults
	}
	return c.policies, c.rows, nil
}

// checkApprovals reports a rule that permits without an approval what another rule permits with one, for
// the same agent or for more. Its author expects the approval to be asked for.
func (c *compiler) checkApprovals() {
	for i := range c.Rules {
		for j := range c.Rules {
			if c.lifts(i, j) {
				c.faults = append(c.faults, c.Rules[i].Fault(c.File, "",
					fmt.Sprintf("the rule permits without an approval what rule %d requires one for, for the same agent", j), "give the two rules different tools"))
				break
			}
		}
	}
}

// lifts reports whether rule i permits without an approval a call for which rule j requires one. A rule
// for more agents may name tools that are free beside one for every tool.
func (c *compiler) lifts(i, j int) bool {
	free, strict := &c.Rules[i], &c.Rules[j]
	if strict.Tools == nil && free.Tools != nil && c.who[i] != c.who[j] {
		return false
	}
	return free.Effect == Allow && strict.Effect == Allow && !free.Approval && strict.Approval &&
		c.who[i].includes(c.who[j]) && free.sharesTool(strict)
}

// includes reports whether p is o, or surely has o among others. It does not know the members of groups.
func (p Principal) includes(o Principal) bool {
	switch {
	case p.Entity.Type != "":
		return p == o
	case p.Type != "":
		return p.Type == o.Type || p.Type == o.Entity.Type && !o.Group
	}
	return true
}

// everything permits every call of a tool of the server.
func (c *compiler) everything() {
	id := strings.TrimSuffix(c.File, ".json") + "#default"
	at := place{c.Line, c.Column}
	c.row(id, Row{Line: c.Line, Effect: Allow, Who: Principal{}.String(), Tools: []string{c.Server + ":*"}})
	c.add(id, at, about(ast.Annotation("id", types.String(id)).Permit(), c.Calls).When(c.match(nil)))
}

// rule compiles a rule.
func (c *compiler) rule(r *Rule, id string) {
	who, hint, err := c.Principal(r.Agent)
	if err != nil {
		c.faults = append(c.faults, r.Fault(c.File, "agent", "agent: "+err.Error(), hint))
	}
	if !r.Expires.IsZero() && c.Clock == "" {
		c.faults = append(c.faults, r.Fault(c.File, "expires", "expires: policies do not see the time", "name the member of the context that holds it: clock: now in config.yaml"))
	}
	c.who = append(c.who, who)
	if len(c.faults) > 0 {
		return
	}
	c.row(id, Row{Line: r.Line, Effect: r.Effect, Who: who.String(), Tools: qualified(c.Server, r.names()), Until: r.Expires, Needs: r.needs()})
	at := place{r.Line, r.Column}
	switch {
	case r.Effect == Deny:
		c.add(id, at, c.scope(r, who, id, "").forbid(c.condition(r)))
	case c.Default == Deny:
		c.permit(r, who, id, at)
	case r.Approval:
		approved := ast.Context().Has("approval").And(ast.Context().Access("approval").Access("template").Equal(ast.String(c.Template())))
		c.add(id, at, c.scope(r, who, id, "requestable").forbid(c.condition(r)).Unless(approved))
	}
	if r.Capability {
		if c.Default == Deny || r.Approval { // the id is taken
			id += ".capability"
		}
		c.add(id, at, c.scope(r, who, id, "capability").forbid(c.condition(r)).Unless(ast.Context().Has("capability")))
	}
}

// permit adds the permit of a rule.
func (c *compiler) permit(r *Rule, who Principal, id string, at place) {
	annotation := ""
	if r.Approval {
		annotation = "approval"
	}
	condition := c.condition(r)
	if r.Capability {
		condition = condition.And(ast.Context().Has("capability"))
	}
	c.add(id, at, c.scope(r, who, id, annotation).permit(condition))
}

// needs lists what a call needs beside the rule.
func (r *Rule) needs() (all []string) {
	if r.Capability {
		all = append(all, "capability")
	}
	if r.Approval {
		all = append(all, "approval")
	}
	return all
}

func qualified(server string, names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = server + ":" + name
	}
	return out
}

// A scope makes policies of a rule that differ in their effect.
type scope struct {
	*compiler
	annotations *ast.Annotations
	who         Principal
}

func (c *compiler) scope(r *Rule, who Principal, id, annotation string) scope {
	annotations := ast.Annotation("id", types.String(id))
	if annotation != "" {
		annotations = annotations.Annotation(types.AnnotationKey(annotation), types.String(c.Template()))
	}
	return scope{c, annotations, who}
}

func (s scope) permit(condition ast.Node) *ast.Policy {
	return about(s.principal(s.annotations.Permit()), s.Calls).When(condition)
}

func (s scope) forbid(condition ast.Node) *ast.Policy {
	return about(s.principal(s.annotations.Forbid()), slices.Concat(s.Calls, s.Requests)).When(condition)
}

// about gives a policy its actions.
func about(p *ast.Policy, actions []types.EntityUID) *ast.Policy {
	if len(actions) == 1 {
		return p.ActionIn(actions[0])
	}
	return p.ActionInSet(actions...)
}

func (s scope) principal(p *ast.Policy) *ast.Policy {
	switch {
	case s.who.Entity.Type != "" && s.who.Group:
		return p.PrincipalIn(s.who.Entity)
	case s.who.Entity.Type != "":
		return p.PrincipalEq(s.who.Entity)
	case s.who.Type != "":
		return p.PrincipalIs(s.who.Type)
	}
	return p
}

// condition returns the condition of a rule: the tools and the time.
func (c *compiler) condition(r *Rule) ast.Node {
	tools := c.match(r.Tools)
	if r.Expires.IsZero() {
		return tools
	}
	end := ast.DatetimeExtensionCall(ast.String(r.Expires.Format("2006-01-02T15:04:05.000Z")))
	return tools.And(ast.Context().Access(types.String(c.Clock)).LessThan(end))
}

// match returns the condition that a request is about one of the tools, or about any of the server.
func (c *compiler) match(tools []string) ast.Node {
	called := ast.Context().Access(CalledTool)
	about := called.Like(types.NewPattern(c.Server+":", types.Wildcard{}))
	switch {
	case len(tools) == 1:
		about = called.Equal(ast.String(c.Server + ":" + tools[0]))
	case len(tools) > 1:
		var names []ast.Node
		for _, name := range qualified(c.Server, tools) {
			names = append(names, ast.String(name))
		}
		about = ast.Set(names...).Contains(called)
	}
	return ast.Context().Has(CalledTool).And(about)
}

// add adds a policy to the document's, and its text to the last row.
func (c *compiler) add(id string, at place, p *ast.Policy) {
	text := p.MarshalCedar()
	c.policies = append(c.policies, Policy{ID: id, Text: text, Line: at.line, Column: at.column})
	row := &c.rows[len(c.rows)-1]
	if row.Cedar != "" {
		row.Cedar += "\n\n"
	}
	row.Cedar += string(text)
}

func (c *compiler) row(id string, r Row) {
	r.Policy, r.File, r.Server = id, c.File, c.Server
	c.rows = append(c.rows, r)
}
