package lint

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A namer warns about unknown names: entities, attribute values, templates. A forbid with such a name
// forbids nothing.
type namer struct {
	linter
	entities map[cedar.EntityType][]string // ids that are stored, or that an entity has as parent
	literals map[cedar.EntityUID]bool      // entities that policies name
	values   map[string]map[string]bool    // stored strings, by attribute
	written  map[string]map[string]int     // strings that policies compare with, by attribute, with their number of uses
	said     map[string]bool               // every string in tests and settings
	reported map[string]bool               // names already reported for the current policy
	named    map[string]bool               // templates that are configured or that an annotation names
}

// nameWarnings lists the names that no entity, schema, setting or test has.
func nameWarnings(s *snapshot.Snapshot, tests []*authzen.EvaluationRequest) faults.List {
	n := namer{linter: linter{snapshot: s},
		entities: map[cedar.EntityType][]string{}, literals: map[cedar.EntityUID]bool{},
		values: map[string]map[string]bool{}, written: map[string]map[string]int{},
		said: map[string]bool{}, named: map[string]bool{}}
	n.learn(tests)
	for _, p := range s.Policies.Ordered {
		n.reported = map[string]bool{}
		n.checkEntities(p)
		n.checkStrings(p)
		n.requestedTypes(p)
	}
	n.servers()
	n.parents()
	n.unusedTemplates()
	n.approvers()
	n.clock()
	_ = n.warnings.Sorted()
	return n.warnings
}

// learn collects every known name.
func (n *namer) learn(tests []*authzen.EvaluationRequest) {
	known := map[cedar.EntityUID]bool{}
	for uid, e := range n.snapshot.Entities.ByUID {
		known[uid] = true
		for _, parent := range e.Ancestors {
			known[parent] = true
		}
		n.learnValues("", e.Attributes)
		n.learnValues("", e.Tags)
	}
	if n.snapshot.Schema != nil {
		for _, enum := range n.snapshot.Schema.Enums {
			for _, uid := range enum.Values {
				known[uid] = true
			}
		}
	}
	for uid := range known {
		n.entities[uid.Type] = append(n.entities[uid.Type], string(uid.ID))
		about := authzen.EvaluationRequest{Resource: authzen.Resource{Type: string(uid.Type), ID: string(uid.ID)}}
		if tool, ok := about.Tool(); ok {
			n.learnValues(snapshot.ContextCalledTool, types.String(tool))
		}
	}
	for _, test := range tests {
		n.learnJSON(test)
		if tool, ok := test.Tool(); ok {
			n.learnValues(snapshot.ContextCalledTool, types.String(tool))
		}
	}
	n.learnJSON(n.snapshot.Settings.SelfTest)
	for name, template := range n.snapshot.Settings.ApprovalTemplates {
		n.named[name] = true
		if template.AutoApprover != nil {
			n.said[template.AutoApprover.ID] = true
		}
	}
	for _, p := range n.snapshot.Policies.Ordered {
		n.learnPolicy(p)
	}
}

func (n *namer) learnPolicy(p *snapshot.Policy) {
	for _, uid := range cedarsyntax.EntityLiterals(p.Syntax) {
		n.literals[uid] = true
	}
	if _, name := p.Template(); name != "" {
		n.named[name] = true
	}
	for c := range comparisons(p.Syntax) {
		if n.written[c.attribute] == nil {
			n.written[c.attribute] = map[string]int{}
		}
		n.written[c.attribute][c.value]++
	}
}

// learnValues collects the strings of a stored value, by attribute.
func (n *namer) learnValues(attribute string, v cedar.Value) {
	switch v := v.(type) {
	case cedar.String:
		if n.values[attribute] == nil {
			n.values[attribute] = map[string]bool{}
		}
		n.values[attribute][string(v)] = true
	case cedar.Set:
		for element := range v.All() {
			n.learnValues(attribute, element)
		}
	case cedar.Record:
		for name, member := range v.All() {
			n.learnValues(string(name), member)
		}
	}
}

// learnJSON collects every string of a JSON value.
func (n *namer) learnJSON(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // an invalid request; reported elsewhere
	}
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		if token.Kind() == '"' {
			n.said[token.String()] = true
		}
	}
}

// checkEntities warns about an unknown entity in a policy if others of its type are stored.
func (n *namer) checkEntities(p *snapshot.Policy) {
	for _, uid := range cedarsyntax.EntityLiterals(p.Syntax) {
		known, id := n.entities[uid.Type], string(uid.ID)
		if cedarsyntax.IsActionType(uid.Type) || len(known) == 0 || n.said[id] || slices.Contains(known, id) {
			continue
		}
		n.warnWord(p, uid.String(), faults.SpellingHint(id, known), "names %s, which no entity, test or setting has", uid)
	}
}

// checkStrings warns about a value that a policy compares with an attribute and that the attribute
// never has.
func (n *namer) checkStrings(p *snapshot.Policy) {
	for c := range comparisons(p.Syntax) {
		if c.template {
			if !n.named[c.value] {
				n.warnWord(p, strconv.Quote(c.value), faults.SpellingHint(c.value, slices.Collect(maps.Keys(n.named))), "compares with the template %q, which is not configured and no annotation names", c.value)
			}
			continue
		}
		known := n.values[c.attribute]
		if known[c.value] || n.said[c.value] {
			continue
		}
		candidates := slices.Collect(maps.Keys(known))
		for other, times := range n.written[c.attribute] {
			if n.said[other] || times > n.written[c.attribute][c.value] {
				candidates = append(candidates, other)
			}
		}
		hint := faults.SpellingHint(c.value, candidates)
		listed := slices.ContainsFunc(c.among, func(other string) bool { return known[other] || n.said[other] })
		if hint != "" || c.entity && len(known) > 0 && !listed { // not every value of a complete list needs to be in use
			n.warnWord(p, strconv.Quote(c.value), hint, "compares %s with %q, which no entity or test has", c.attribute, c.value)
		}
	}
}

// warnWord warns once about a name in a policy, at its position.
func (n *namer) warnWord(p *snapshot.Policy, written, hint, format string, args ...any) {
	if n.reported[written] {
		return
	}
	n.reported[written] = true
	n.warn(p, hint, format, args...)
	st := n.snapshot.Statement(p)
	if at := cedarsyntax.Tokenize(st).Find(cedarsyntax.Tokenize(cedarsyntax.Statement{Text: []byte(written)}).Texts()...); at >= 0 {
		last := &n.warnings[len(n.warnings)-1]
		last.Line, last.Column = st.Position(faults.LineAndColumn(st.Text, int64(at)))
	}
}

// A comparison compares an attribute with a string.
type comparison struct {
	attribute, value string
	entity           bool     // the attribute is the principal's or the resource's
	template         bool     // the string names the template of an approval
	among            []string // all strings of the set that contains the value
}

// comparisons yields the comparisons in a policy's conditions: with == and !=, and with the elements
// of a set.
func comparisons(p *xast.Policy) func(yield func(comparison) bool) {
	return func(yield func(comparison) bool) {
		for _, condition := range p.Conditions {
			xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
				left, right := compared(n)
				for _, pair := range [][2]xast.IsNode{{left, right}, {right, left}} {
					for _, c := range comparisonsOf(pair[0], pair[1]) {
						if !yield(c) {
							return false
						}
					}
				}
				return true
			})
		}
	}
}

// compared returns the two sides of a comparison.
func compared(n xast.IsNode) (left, right xast.IsNode) {
	switch n := n.(type) {
	case xast.NodeTypeEquals:
		return n.Left, n.Right
	case xast.NodeTypeNotEquals:
		return n.Left, n.Right
	case xast.NodeTypeContains:
		return n.Left, n.Right
	case xast.NodeTypeContainsAny:
		return n.Left, n.Right
	case xast.NodeTypeContainsAll:
		return n.Left, n.Right
	}
	return nil, nil
}

func comparisonsOf(path, literal xast.IsNode) []comparison {
	if path == nil {
		return nil
	}
	if _, ok := path.(xast.NodeTypeAccess); !ok {
		return nil
	}
	variable, names := cedarsyntax.PathSteps(path)
	if variable == "" || len(names) == 0 || slices.Contains(names, snapshot.ContextJustification) {
		return nil
	}
	last := names[len(names)-1]
	approval := variable == "context" && names[0] == snapshot.ContextApproval
	if approval && last != snapshot.ApprovalTemplateName {
		return nil
	}
	var all []comparison
	among := stringsIn(literal)
	for _, value := range among {
		all = append(all, comparison{attribute: last, value: value, among: among, entity: variable != "context",
			template: last == snapshot.ApprovalTemplateName && (approval || variable == "resource" && len(names) == 1)})
	}
	return all
}

// stringsIn lists the strings of a literal, or of a set of literals.
func stringsIn(n xast.IsNode) []string {
	elements := []xast.IsNode{n}
	if set, ok := n.(xast.NodeTypeSet); ok {
		elements = set.Elements
	}
	var all []string
	for _, element := range elements {
		if value, ok := element.(xast.NodeValue); ok {
			if text, ok := value.Value.(types.String); ok {
				all = append(all, string(text))
			}
		}
	}
	return all
}

// servers warns about an access document whose server no entity or test has, if the name resembles one
// that they have.
func (n *namer) servers() {
	known := map[string]bool{}
	for tool := range n.values[snapshot.ContextCalledTool] {
		server, _, _ := strings.Cut(tool, ":")
		known[strings.ToLower(server)] = true
	}
	names, reported := slices.Sorted(maps.Keys(known)), map[string]bool{}
	for _, row := range n.snapshot.Access {
		server := strings.ToLower(row.Server)
		hint := faults.SpellingHint(server, names)
		if reported[row.File] || hint == "" || known[row.Server] {
			continue
		}
		reported[row.File] = true
		n.warnings = append(n.warnings, faults.Fault{File: row.File, Line: 1, Column: 1, Hint: hint,
			Message: fmt.Sprintf("the document is about the server %s, of which no entity or test has a tool", row.Server)})
	}
}

// parents warns about parents of entities that are not stored and that no policy names. It does so
// only if others of their type are stored or have a similar name.
func (n *namer) parents() {
	store := n.snapshot.Entities.ByUID
	unknown := map[cedar.EntityUID]bool{}
	known := map[cedar.EntityType][]string{}
	for uid, e := range store {
		known[uid.Type] = append(known[uid.Type], string(uid.ID))
		for _, parent := range e.Ancestors {
			if _, stored := store[parent]; !stored && !n.literals[parent] && !n.said[string(parent.ID)] {
				unknown[parent] = true
			}
		}
	}
	for uid := range n.literals {
		if slices.Contains(n.entities[uid.Type], string(uid.ID)) {
			known[uid.Type] = append(known[uid.Type], string(uid.ID))
		}
	}
	for _, uid := range slices.SortedFunc(maps.Keys(unknown), snapshot.CompareUID) {
		if hint := faults.SpellingHint(string(uid.ID), known[uid.Type]); hint != "" {
			fault := placeOf(n.snapshot, snapshot.FileEntities, strconv.Quote(string(uid.ID)))
			fault.Message, fault.Hint = fmt.Sprintf("the parent %s is not stored, and no policy names it", uid), hint
			n.warnings = append(n.warnings, fault)
		}
	}
}

// unusedTemplates warns about templates that no policy names.
func (n *namer) unusedTemplates() {
	used := map[string]bool{}
	for _, p := range n.snapshot.Policies.Ordered {
		_, name := p.Template()
		used[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(n.snapshot.Settings.ApprovalTemplates)) {
		if !used[name] {
			n.warnSetting("no policy uses the template "+name, "", "approval_templates", name)
		}
	}
}

// warnSetting warns at the position of a setting.
func (n *namer) warnSetting(message, hint string, path ...string) {
	for _, file := range n.snapshot.Archive().Files(snapshot.FileConfig) {
		d, err := yamldoc.Parse(file, n.snapshot.Archive()[file])
		if err != nil || !d.Has(path...) {
			continue
		}
		n.warnings = append(n.warnings, d.Fault(message, hint, path...))
		return
	}
}

// actionApprove is the action that approvers need.
const actionApprove = "approval.approve"

// approvers warns about approvals that no one may give.
func (n *namer) approvers() {
	s := n.snapshot
	approve, err := s.Action(actionApprove)
	if err != nil {
		return
	}
	q := snapshot.ResolvedEntity{UID: approve, Ancestors: s.Entities.ByUID[approve].Ancestors}
	for _, p := range s.Policies.Ordered {
		if p.Permits() && p.Terms.Approval == "" && slices.ContainsFunc(p.Scope.Actions, q.Passes) {
			return
		}
	}
	for _, p := range s.Policies.Ordered {
		if key, name := p.Template(); name != "" {
			n.warnAt(p, key, "permit the action "+actionApprove+" to somebody", "needs an approval that nobody may give")
			return
		}
	}
}

// clock warns about a clock attribute that no action of the schema has in its context.
func (n *namer) clock() {
	s := n.snapshot
	if s.Settings.Clock == "" || s.Schema == nil {
		return
	}
	times := map[string]bool{}
	for _, context := range s.Shapes.Contexts {
		for name, member := range context.Members {
			if name == s.Settings.Clock {
				return
			}
			if member.OrAny().Kind == snapshot.KindDatetime {
				times[name] = true
			}
		}
	}
	hint := "declare it as a datetime in the context of actions"
	if names := slices.Sorted(maps.Keys(times)); len(names) > 0 {
		hint = fmt.Sprintf("did you mean %q?", names[0])
	}
	n.warnSetting("clock: the schema has no "+s.Settings.Clock+" in the context of any action", hint, "clock")
}

// requestedTypes warns about a policy that requires approvals for a resource type which the schema's
// access_request does not allow as its resource. No one could give them.
func (n *namer) requestedTypes(p *snapshot.Policy) {
	s := n.snapshot
	key, name := p.Template()
	declared := s.Shapes.Entities[snapshot.TypeAccessRequest]
	if name == "" || s.Schema == nil || declared == nil {
		return
	}
	resource, ok := declared.Members["resource"]
	if !ok || resource.OrAny().Kind != snapshot.KindEntity {
		return
	}
	others := map[cedar.EntityType]bool{}
	for uid, action := range s.Schema.Actions {
		q := snapshot.ResolvedEntity{UID: uid, Ancestors: s.Entities.ByUID[uid].Ancestors}
		if !snapshot.Applies(action) || !slices.ContainsFunc(p.Scope.Actions, q.Passes) {
			continue
		}
		for _, t := range action.AppliesTo.Resources {
			if t != resource.Entity && t != snapshot.TypeAccessRequest && slices.ContainsFunc(p.Scope.Resources, func(test xast.IsScopeNode) bool { return mayBeOf(test, t) }) {
				others[t] = true
			}
		}
	}
	for _, t := range slices.Sorted(maps.Keys(others)) {
		n.warnAt(p, key, fmt.Sprintf("narrow the policy to resource is %s", resource.Entity),
			"needs approvals for resources of type %s, which nobody can give: the resource of %s is a %s in the schema", t, snapshot.TypeAccessRequest, resource.Entity)
	}
}

// mayBeOf reports whether an entity of a type can satisfy a test.
func mayBeOf(test xast.IsScopeNode, t cedar.EntityType) bool {
	switch test := test.(type) {
	case xast.ScopeTypeEq:
		return test.Entity.Type == t
	case xast.ScopeTypeIs:
		return test.Type == t
	case xast.ScopeTypeIsIn:
		return test.Type == t
	}
	return true
}
