package lint

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"

	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// SnapshotWarnings lists valid parts of a policy store that are rarely intended: policies that never or
// always apply, permits that a forbid makes ineffective, policies that every request must evaluate, and
// attributes that look misspelled.
func SnapshotWarnings(s *snapshot.Snapshot) faults.List {
	l := linter{snapshot: s}
	for _, p := range s.Policies.Ordered {
		l.policy(p)
	}
	if len(s.Policies.Ordered) == 0 {
		l.warnings = append(l.warnings, faults.Fault{File: ".", Message: "there are no policies: every request is denied"})
	}
	l.shadows()
	l.idleActions()
	_ = l.warnings.Sorted()
	return l.warnings
}

type linter struct {
	snapshot *snapshot.Snapshot
	warnings faults.List
	open     []*snapshot.Policy // forbids whose conditions always hold
	known    map[string]bool
}

func (l *linter) warn(p *snapshot.Policy, hint, format string, args ...any) {
	l.warnings = append(l.warnings, faults.Fault{File: p.File, Line: p.Line, Column: p.Column,
		Message: fmt.Sprintf("policy %s ", p.ID) + fmt.Sprintf(format, args...), Hint: hint})
}

// warnAt warns at the position of an annotation of the policy.
func (l *linter) warnAt(p *snapshot.Policy, key, hint, format string, args ...any) {
	l.warn(p, hint, format, args...)
	last := &l.warnings[len(l.warnings)-1]
	last.Line, last.Column = p.AnnotationPlace(l.snapshot.Statement(p), key)
}

func (l *linter) policy(p *snapshot.Policy) {
	l.annotations(p)
	l.unknownTemplate(p)
	s := cedarsyntax.ScopeOf(p.Syntax)
	unscoped := isOpen(s.Principals) && isOpen(s.Actions) && isOpen(s.Resources)
	switch applies, always := residual(p.Syntax); {
	case !applies:
		l.warn(p, "", "never applies: its conditions are false whatever the request")
	case always && unscoped && p.Permits():
		l.warn(p, "", "permits everything")
	case always && !p.Permits():
		l.open = append(l.open, p)
	case unscoped:
		l.warn(p, "name a principal, an action or a resource in its scope", "has no scope: every request is held against it")
	}
	if l.snapshot.Schema == nil {
		l.attributes(p)
	}
}

func isOpen(tests []xast.IsScopeNode) bool {
	_, all := tests[0].(xast.ScopeTypeAll)
	return all
}

// residual reports whether a policy's conditions can hold and whether they always hold, as far as can
// be known without a request.
func residual(p *xast.Policy) (applies, always bool) {
	unscoped := *p
	all := xast.Scope{}.All()
	unscoped.Principal, unscoped.Action, unscoped.Resource = all, all, all
	left, applies := eval.PartialPolicy(eval.Env{
		Entities:  types.EntityMap{},
		Principal: eval.Variable("principal"),
		Action:    eval.Variable("action"),
		Resource:  eval.Variable("resource"),
		Context:   eval.Variable("context"),
	}, &unscoped)
	if !applies {
		return false, false
	}
	return true, !slices.ContainsFunc(left.Conditions, func(c xast.ConditionType) bool {
		return c.Body != xast.IsNode(xast.NodeValue{Value: types.Boolean(c.Condition)})
	})
}

// shadows warns about permits whose whole scope an unconditional forbid covers.
func (l *linter) shadows() {
	for _, p := range l.snapshot.Policies.Ordered {
		i := slices.IndexFunc(l.open, func(f *snapshot.Policy) bool { return p.Permits() && covers(f.Syntax, p.Syntax) })
		if i >= 0 {
			f := l.open[i]
			l.warn(p, "", "has no effect: policy %s (%s:%d) forbids all of it", f.ID, f.File, f.Line)
		}
	}
}

// covers reports whether every request in the scope of p is in that of f.
func covers(f, p *xast.Policy) bool {
	return within(p.Principal, f.Principal) && within(p.Resource, f.Resource) &&
		!slices.ContainsFunc(cedarsyntax.ActionTests(p.Action), func(narrow xast.IsScopeNode) bool {
			return !slices.ContainsFunc(cedarsyntax.ActionTests(f.Action), func(wide xast.IsScopeNode) bool { return within(narrow, wide) })
		})
}

// within reports whether everything that satisfies narrow also satisfies wide, judged by the two tests
// alone.
func within(narrow, wide xast.IsScopeNode) bool {
	switch w := wide.(type) {
	case xast.ScopeTypeAll:
		return true
	case xast.ScopeTypeIn:
		if n, ok := narrow.(xast.ScopeTypeEq); ok {
			return n.Entity == w.Entity
		}
		if n, ok := narrow.(xast.ScopeTypeIsIn); ok {
			return n.Entity == w.Entity
		}
	case xast.ScopeTypeIs:
		switch n := narrow.(type) {
		case xast.ScopeTypeEq:
			return n.Entity.Type == w.Type
		case xast.ScopeTypeIsIn:
			return n.Type == w.Type
		}
	}
	return narrow == wide
}

// attributes warns about an attribute of principal or resource that no stored entity has, if a stored
// attribute has almost the same name.
func (l *linter) attributes(p *snapshot.Policy) {
	reported := map[string]bool{}
	for _, condition := range p.Syntax.Conditions {
		xast.Inspect(xast.NewNode(condition.Body), func(n xast.IsNode) bool {
			name, ok := entityAttribute(n)
			if !ok || reported[name] || l.stored()[name] {
				return true
			}
			reported[name] = true
			if near := faults.Nearest(name, slices.Collect(maps.Keys(l.stored())), 2); near != "" {
				l.warn(p, fmt.Sprintf("did you mean %q?", near), "reads the attribute %q, which no stored entity has", name)
			}
			return true
		})
	}
}

// entityAttribute returns the name of an attribute that a node reads from principal or resource.
func entityAttribute(n xast.IsNode) (string, bool) {
	var access xast.StrOpNode
	switch n := n.(type) {
	case xast.NodeTypeAccess:
		access = n.StrOpNode
	case xast.NodeTypeHas:
		access = n.StrOpNode
	default:
		return "", false
	}
	return string(access.Value), cedarsyntax.EntityVariable(access.Arg) != ""
}

// idleActions warns about actions that no request can name and that are not groups.
func (l *linter) idleActions() {
	if l.snapshot.Schema == nil {
		return
	}
	groups := map[cedar.EntityUID]bool{}
	for _, action := range l.snapshot.Schema.Actions {
		for parent := range action.Entity.Parents.All() {
			groups[parent] = true
		}
	}
	for uid, action := range l.snapshot.Schema.Actions {
		if !snapshot.Applies(action) && !groups[uid] {
			fault := schemaPlace(l.snapshot, string(uid.ID))
			fault.Message, fault.Hint = "the action "+uid.String()+" applies to nothing and has no action in it: no request can name it", "say what it appliesTo"
			l.warnings = append(l.warnings, fault)
		}
	}
}

// schemaPlace returns the first position of a name in a schema, bare or quoted.
func schemaPlace(s *snapshot.Snapshot, name string) faults.Fault {
	files := slices.Concat(s.Archive().Files(snapshot.FileCedarSchema), s.Archive().Files(snapshot.FileJSONSchema))
	for _, file := range files {
		text := cedarsyntax.Tokenize(cedarsyntax.Statement{Text: s.Archive()[file]})
		for _, word := range []string{name, strconv.Quote(name)} {
			if at := text.Find(word); at >= 0 {
				line, column := faults.LineAndColumn(s.Archive()[file], int64(at))
				return faults.Fault{File: file, Line: line, Column: column}
			}
		}
	}
	return faults.Fault{File: files[len(files)-1]}
}

// stored returns the names of all attributes that are stored or declared in config.yaml.
func (l *linter) stored() map[string]bool {
	if l.known != nil {
		return l.known
	}
	l.known = map[string]bool{}
	for _, e := range l.snapshot.Entities.ByUID {
		for name := range e.Attributes.All() {
			l.known[string(name)] = true
		}
	}
	for _, shape := range l.snapshot.Shapes.Entities {
		for _, name := range shape.Names() {
			l.known[name] = true
		}
	}
	return l.known
}

// annotations warns about unknown annotations.
func (l *linter) annotations(p *snapshot.Policy) {
	for _, a := range p.Syntax.Annotations {
		if key := string(a.Key); !snapshot.IsKnownAnnotation(key) && !snapshot.IsMisspelledAnnotation(key) {
			l.warnAt(p, key, "", "has the annotation @%s, which nobody reads", key)
		}
	}
}

// unknownTemplate warns about a template that has the default terms because it is not configured.
func (l *linter) unknownTemplate(p *snapshot.Policy) {
	key, name := p.Template()
	if problem := l.snapshot.TemplateProblem(name); problem.Unknown && !problem.Fault {
		l.warnAt(p, key, "add it there, if only as "+name+": {}", "names the template %q, which approval_templates of %s does not have: it has the default terms", name, snapshot.FileConfig)
	}
}

// Check compiles a policy store as [snapshot.CompileStore] does and lists its warnings. Names in tests
// count as known. For a store with faults it returns no snapshots. It still returns warnings if
// everything could be read.
func Check(a snapshot.Archive, tests ...*authzen.EvaluationRequest) (s *snapshot.Snapshots, found, warnings faults.List) {
	s, found, whole := snapshot.Inspect(a)
	if whole {
		warnings = Warnings(s, tests...)
	}
	if len(found) > 0 {
		return nil, found, warnings
	}
	return s, nil, warnings
}

// Warnings lists the warnings of every snapshot without duplicates. Names in the store's tests count as
// known. A name in the root is known if one tenant knows it.
func Warnings(s *snapshot.Snapshots, tests ...*authzen.EvaluationRequest) faults.List {
	var all faults.List
	told := map[faults.Fault]int{}
	for _, compiled := range s.All() {
		all = append(all, SnapshotWarnings(compiled)...)
		names := nameWarnings(compiled, tests)
		for _, warning := range names.Unique() {
			at := warning
			at.Hint = ""
			told[at]++
			if snapshot.TenantOf(warning.File) != "" || told[at] == len(s.All()) {
				all = append(all, warning)
			}
		}
	}
	all = all.Unique()
	_ = all.Sorted()
	return all
}

// PolicyWarnings lists the warnings of every snapshot without duplicates, except those about names.
func PolicyWarnings(s *snapshot.Snapshots) faults.List {
	var all faults.List
	for _, compiled := range s.All() {
		all = append(all, SnapshotWarnings(compiled)...)
	}
	all = all.Unique()
	_ = all.Sorted()
	return all
}

// placeOf returns the first position of a text in the files of a base name.
func placeOf(s *snapshot.Snapshot, base, text string) faults.Fault {
	file := base
	for _, file = range s.Archive().Files(base) {
		if at := bytes.Index(s.Archive()[file], []byte(text)); at >= 0 {
			line, column := faults.LineAndColumn(s.Archive()[file], int64(at))
			return faults.Fault{File: file, Line: line, Column: column}
		}
	}
	return faults.Fault{File: file}
}
