package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/evaluation/accesspolicy"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Actions that access documents are about.
var (
	callGroup   = cedar.NewEntityUID(actionType, "call")
	callActions = []cedar.EntityUID{
		cedar.NewEntityUID(actionType, "tools/call"),
		cedar.NewEntityUID(actionType, "tool.invoke"),
	}
	requestAction = cedar.NewEntityUID(actionType, "tools/request")
)

// An accessStatement is a policy that was compiled from an access document.
type accessStatement struct {
	file string
	cedarsyntax.Statement
}

// readAccess compiles the access documents to policies.
func (c *compiler) readAccess(s *Snapshot) (all []accessStatement) {
	var documents []*accesspolicy.Document
	for _, file := range c.archive.AccessFiles() {
		c.inTime()
		d, found := accesspolicy.Parse(file, c.archive[file])
		c.faults, c.partial = append(c.faults, found...), c.partial || len(found) > 0
		if d != nil {
			documents = append(documents, d)
		}
	}
	s.accessDocuments = len(documents) > 0
	c.checkServers(documents)
	actions, ok := c.accessActions(s, documents)
	if !ok {
		c.partial = true
		return nil
	}
	for _, d := range documents {
		c.inTime()
		settings := c.accessSettings(TenantOf(d.File))
		terms := accesspolicy.Terms{Calls: actions.calls, Requests: actions.requests, Clock: settings.Clock}
		terms.Principal = agentReader{s, settings, actions}.principal
		compiled, rows, found := d.Compile(terms)
		c.faults, c.partial = append(c.faults, found...), c.partial || len(found) > 0
		s.Access = append(s.Access, rows...)
		for _, p := range compiled {
			all = append(all, accessStatement{d.File, cedarsyntax.Statement{Text: p.Text, Line: p.Line, Column: p.Column, Compiled: true}})
		}
	}
	return all
}

// checkServers reports a second document for the same server, or for one whose name differs only in its
// case. Its rules would add to those of the first, and an allowlist would no longer list all.
func (c *compiler) checkServers(documents []*accesspolicy.Document) {
	type key struct{ tenant, server string }
	first := map[key]string{}
	for _, d := range documents {
		k := key{TenantOf(d.File), strings.ToLower(d.Server)}
		if other, taken := first[k]; taken {
			c.fault(d.File, 1, 1, fmt.Sprintf("%s is about the server %s already", other, d.Server), "a server has one document, and names of servers differ in more than case")
			continue
		}
		first[k] = d.File
	}
}

// accessSettings returns the settings under which the documents of a tenant are read, or those of the
// root for "". A tenant does not change what documents of the root mean.
func (c *compiler) accessSettings(tenant string) *Settings {
	settings := c.settings[""]
	if tenant != "" {
		_ = settings.add(c.settings[tenant], true) // readSettings has reported the error
	}
	return &settings
}

// accessActions holds the actions that access documents are about.
type accessActions struct {
	calls, requests []cedar.EntityUID
	principals      map[cedar.EntityType]bool // types of their subjects; nil without a schema
}

// accessActions returns the actions of access documents. It reports a schema that does not declare what
// the documents read.
func (c *compiler) accessActions(s *Snapshot, documents []*accesspolicy.Document) (out accessActions, ok bool) {
	if len(documents) == 0 {
		return out, true
	}
	if c.schema == nil {
		return accessActions{calls: callActions, requests: []cedar.EntityUID{requestAction}}, true
	}
	var applied []cedar.EntityUID
	for _, uid := range callActions {
		if a, declared := c.schema.Actions[uid]; declared && Applies(a) {
			applied = append(applied, uid)
		}
	}
	if len(applied) == 0 {
		c.fault(documents[0].File, 1, 1, `the schema declares neither Action::"tools/call" nor Action::"tool.invoke", which access documents are about`, "")
		return out, false
	}
	inGroup := func(uid cedar.EntityUID) bool { return slices.Contains(s.Entities.ByUID[uid].Ancestors, callGroup) }
	out.calls = slices.DeleteFunc(slices.Clone(applied), inGroup)
	if len(out.calls) < len(applied) {
		out.calls = append([]cedar.EntityUID{callGroup}, out.calls...)
		for uid, a := range c.schema.Actions {
			if inGroup(uid) && Applies(a) && !slices.Contains(applied, uid) {
				applied = append(applied, uid)
			}
		}
	}
	if a, declared := c.schema.Actions[requestAction]; declared && Applies(a) {
		out.requests, applied = []cedar.EntityUID{requestAction}, append(applied, requestAction)
	}
	slices.SortFunc(applied, CompareUID)
	out.principals = map[cedar.EntityType]bool{}
	for _, uid := range applied {
		for _, t := range c.schema.Actions[uid].AppliesTo.Principals {
			out.principals[t] = true
		}
	}
	return out, c.checkAccessContext(s, documents, applied)
}

// checkAccessContext reports members of contexts that access documents read and the schema does not
// declare.
func (c *compiler) checkAccessContext(s *Snapshot, documents []*accesspolicy.Document, applied []cedar.EntityUID) bool {
	before := len(c.faults)
	for _, uid := range applied {
		declared := s.Shapes.Contexts[uid].Members
		if m, ok := declared[accesspolicy.CalledTool]; !ok || m.required || m.Kind != kindString {
			c.accessContextFault(uid, accesspolicy.CalledTool, accesspolicy.CalledTool+"?: String")
		}
		for _, d := range documents {
			if m := declared[ContextCapability]; m.shape == nil && d.Needs(ContextCapability) {
				c.accessContextFault(uid, ContextCapability, "capability?: { id: String }")
			}
			if m := declared[ContextApproval]; m.shape == nil && d.Needs(ContextApproval) {
				c.accessContextFault(uid, ContextApproval, "approval?: { template: String }")
			}
			if clock := c.accessSettings(TenantOf(d.File)).Clock; clock != "" && d.Expires() {
				if m := declared[clock]; m.shape == nil || m.Kind != KindDatetime || !m.required {
					c.accessContextFault(uid, clock, clock+": datetime")
				}
			}
		}
	}
	return len(c.faults) == before
}

// accessContextFault reports that an action of the schema does not declare a member as documents read it.
func (c *compiler) accessContextFault(action cedar.EntityUID, member, declaration string) {
	files := slices.Concat(c.archive.Files(FileCedarSchema), c.archive.Files(FileJSONSchema))
	file, line, column := c.declaration(files, "action", string(action.ID))
	c.fault(file, line, column, fmt.Sprintf("the context of %s does not declare %s as access documents read it", action, member), "declare "+declaration)
}

// An agentReader resolves the agents of a document's rules.
type agentReader struct {
	snapshot *Snapshot
	settings *Settings
	actions  accessActions
}

// principal returns the principal that an agent names.
func (r agentReader) principal(agent string) (p accesspolicy.Principal, hint string, err error) {
	if agent == "*" {
		return p, "", nil
	}
	named, found := authzen.ParseEntityName(agent)
	if !found {
		if named.ID, named.Type, hint, err = r.typed(agent); err != nil {
			return p, hint, err
		}
	}
	of, err := r.settings.entityType(named.Type)
	if err != nil {
		return p, "", fmt.Errorf("%q is not the name of an entity type", named.Type)
	}
	group, hint, err := r.check(of)
	if err != nil {
		return p, hint, err
	}
	if named.ID == "*" {
		if group {
			return p, "a group is TYPE:ID", fmt.Errorf("%s is a type of groups, which call nothing themselves", of)
		}
		return accesspolicy.Principal{Type: of}, "", nil
	}
	return accesspolicy.Principal{Entity: cedar.NewEntityUID(of, cedar.String(named.ID)), Group: group}, "", nil
}

// typed returns the type of an id without one.
func (r agentReader) typed(id string) (same, of, hint string, err error) {
	if of := r.settings.Access.typeOf(id); of != "" {
		return id, of, "", nil
	}
	if len(r.settings.SubjectTypes) == 1 {
		return id, r.settings.SubjectTypes[0], "", nil
	}
	return "", "", "write TYPE:ID, or set access: {default: agent} in " + FileConfig, fmt.Errorf("%q has no type", id)
}

// check reports whether entities of a type are groups. The error is about a type that no participant has.
func (r agentReader) check(of cedar.EntityType) (group bool, hint string, err error) {
	schema := r.snapshot.Schema
	if schema == nil {
		known := r.knownTypes()
		if hint := faults.SpellingHint(string(of), known); !slices.Contains(known, string(of)) && hint != "" {
			return false, hint, fmt.Errorf("no participant has the type %s", of)
		}
		return r.snapshot.Entities.parents[of] || r.settings.isParentType(of), "", nil
	}
	groups := map[cedar.EntityType]bool{}
	for t := range r.actions.principals {
		for _, parent := range schema.Entities[t].ParentTypes {
			groups[parent] = true
		}
	}
	if groups[of] || r.actions.principals[of] {
		return groups[of], "", nil
	}
	var known []string
	for t := range maps.Keys(r.actions.principals) {
		known = append(known, string(t))
	}
	for t := range maps.Keys(groups) {
		known = append(known, string(t))
	}
	slices.Sort(known)
	return false, faults.SpellingHint(string(of), known), fmt.Errorf("no participant has the type %s; known are %s", of, strings.Join(known, ", "))
}

// knownTypes lists the types that a store without a schema names.
func (r agentReader) knownTypes() (known []string) {
	for uid := range r.snapshot.Entities.ByUID {
		known = append(known, string(uid.Type))
	}
	for t := range r.snapshot.Entities.parents {
		known = append(known, string(t))
	}
	known = slices.Concat(known, r.settings.SubjectTypes, r.settings.Access.types(),
		slices.Collect(maps.Values(r.settings.TypeAliases)), slices.Collect(maps.Values(r.settings.Parents)))
	slices.Sort(known)
	return slices.Compact(known)
}
