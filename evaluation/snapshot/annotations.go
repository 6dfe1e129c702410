package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/cedar-policy/cedar-go"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/obligations"
)

// annotationID is the annotation that names a policy.
const annotationID = "id"

// annotationNotification is the annotation whose form the settings choose.
const annotationNotification = "obligation_notification"

// readAnnotations sets the policy's id and terms from its annotations.
func (c *compiler) readAnnotations(p *Policy, st cedarsyntax.Statement) {
	annotations := annotationsOf(p.Syntax)
	id := annotations[annotationID]
	if id == "" {
		c.fault(p.File, p.Line, p.Column, "this policy has no @id", `begin it with @id("a-unique-name")`)
	}
	p.ID = cedar.PolicyID(id)
	terms, err := obligations.Parse(p.Permits(), annotations)
	if err == nil && c.notificationTo == notifyString {
		if err = terms.NotifyOne(); err != nil {
			err = fmt.Errorf("@%s: notification_to is %s: it %w", annotationNotification, notifyString, err)
		}
	}
	p.Terms = &terms
	reported := map[string]bool{}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			message := strings.TrimSpace(line)
			key, _, _ := strings.Cut(strings.TrimPrefix(message, "@"), ":")
			reported[key] = true
			c.annotationFault(p, st, key, message)
		}
	}
	for _, a := range p.Syntax.Annotations {
		if key := string(a.Key); !c.logged && !reported[key] && !IsKnownAnnotation(key) && IsMisspelledAnnotation(key) {
			c.annotationFault(p, st, key, "@"+key+": is not known; known are "+strings.Join(obligations.Known(), ", "))
		}
	}
}

// annotationFault reports a fault at the position of an annotation.
func (c *compiler) annotationFault(p *Policy, st cedarsyntax.Statement, key, message string) {
	hint := ""
	if near := meantAnnotation(key); near != "" && !IsKnownAnnotation(key) {
		hint = "did you mean " + near + "?"
	}
	line, column := p.AnnotationPlace(st, key)
	name := "this policy"
	if p.ID != "" {
		name = "policy " + string(p.ID)
	}
	c.fault(p.File, line, column, name+": "+message, hint)
}

func annotationsOf(p *xast.Policy) map[string]string {
	annotations := map[string]string{}
	for _, a := range p.Annotations {
		annotations[string(a.Key)] = string(a.Value)
	}
	return annotations
}

// IsKnownAnnotation reports whether the service uses an annotation.
func IsKnownAnnotation(key string) bool {
	return key == annotationID || slices.Contains(obligations.Known(), "@"+key)
}

// IsMisspelledAnnotation reports whether an unknown annotation resembles one of the service's. The
// service would ignore it, and the obligation it asks for would be lost. So the caller must not
// accept it as a note of the author's.
func IsMisspelledAnnotation(key string) bool {
	return meantAnnotation(key) != "" || slices.ContainsFunc(annotationWords(key), func(word string) bool {
		return faults.Nearest(word, []string{"obligation"}, 1) != ""
	})
}

// meantAnnotation returns the annotation that a key misspells, or "". It ignores case and
// underscores and allows two edits. The key may contain the name of a template's annotation, as in
// require_approval.
func meantAnnotation(key string) string {
	known := map[string]string{annotationID: "@" + annotationID}
	var long []string
	for _, name := range obligations.Known() {
		known[foldAnnotation(name)] = name
		long = append(long, foldAnnotation(name))
	}
	folded := foldAnnotation(key)
	if name, ok := known[folded]; ok {
		return name
	}
	if near := faults.Nearest(folded, long, 2); near != "" {
		return known[near]
	}
	for _, name := range []string{"approval", "requestable", "capability"} {
		partly := func(word string) bool { return faults.Nearest(word, []string{name}, 1) != "" }
		if strings.Contains(folded, name) || slices.ContainsFunc(annotationWords(key), partly) {
			return "@" + name
		}
	}
	return meantObligation(key)
}

// meantObligation returns the annotation of the obligation that a key names by its type alone, or
// with the word obligation in another position. It returns "" for none.
func meantObligation(key string) string {
	kinds := map[string]string{}
	for _, name := range obligations.Known() {
		if kind, ok := strings.CutPrefix(foldAnnotation(name), "obligation"); ok {
			kinds[kind] = name
		}
	}
	folded := foldAnnotation(key)
	rest := strings.Replace(folded, "obligation", "", 1)
	if rest == folded {
		delete(kinds, "custom") // too common: "customer" would match
		if len(folded) < len("stepup") {
			return ""
		}
	}
	return kinds[faults.Nearest(rest, slices.Collect(maps.Keys(kinds)), faults.MaxEdits(rest))]
}

func foldAnnotation(key string) string {
	return strings.NewReplacer("_", "", "-", "", "@", "").Replace(strings.ToLower(key))
}

// annotationWords splits a key at underscores, hyphens and capitals.
func annotationWords(key string) []string {
	var spaced strings.Builder
	previous := ' '
	for _, r := range key {
		if unicode.IsUpper(r) && unicode.IsLower(previous) {
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(r)
		previous = r
	}
	return strings.FieldsFunc(strings.ToLower(spaced.String()), func(r rune) bool { return r == '_' || r == '-' || r == ' ' })
}

// checkTemplates checks the template names in policies against the configured templates. An
// unknown name gets the default terms, with a quorum of one. It is a fault if the author may have
// meant a stricter template.
func (c *compiler) checkTemplates(s *Snapshot) {
	if c.logged {
		return
	}
	for _, p := range s.Policies.Ordered {
		key, name := p.Template()
		if problem := s.TemplateProblem(name); problem.Fault {
			line, column := p.AnnotationPlace(statementOf(c.archive, p), key)
			c.fault(p.File, line, column, fmt.Sprintf("policy %s: @%s names the template %q, which approval_templates of %s does not have", p.ID, key, name, FileConfig), problem.hint)
		}
	}
}

// Template returns the template that the policy's annotation names, and the key of the annotation.
// Both are "" for none.
func (p *Policy) Template() (key, name string) {
	if p.Permits() {
		return "approval", p.Terms.Approval
	}
	if p.Terms.Capability != "" {
		return "capability", p.Terms.Capability
	}
	return "requestable", p.Terms.Requestable
}

// A templateProblem describes the consequence of an unknown template name.
type templateProblem struct {
	Unknown, Fault bool
	hint           string
}

// TemplateProblem returns the problem with an unknown template name, or zero for a configured or empty one.
func (s *Snapshot) TemplateProblem(name string) templateProblem {
	if _, ok := s.Settings.ApprovalTemplates[name]; ok || name == "" {
		return templateProblem{}
	}
	out := templateProblem{Unknown: true}
	var names []string
	for configured, template := range s.Settings.ApprovalTemplates {
		names = append(names, configured)
		out.Fault = out.Fault || template.quorum() > 1
	}
	if near := faults.Nearest(name, names, 2); near != "" {
		out.Fault, out.hint = true, fmt.Sprintf("did you mean %q?", near)
	} else if out.Fault {
		out.hint = "add it there: without an entry one person is enough"
	}
	return out
}
