package snapshot

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
)

// typeFaults reports the validator's errors about a policy, each at the name it concerns.
func (c *compiler) typeFaults(p *Policy, st cedarsyntax.Statement, err error) {
	said := typeErrors(string(p.ID), err)
	for _, text := range said {
		if isConsequence(text) && len(said) > 1 {
			continue
		}
		fault := typeError{text, cedarsyntax.Tokenize(st)}
		line, column := p.Line, p.Column
		if offset := fault.offset(); offset >= 0 {
			line, column = st.Position(faults.LineAndColumn(st.Text, int64(offset)))
		}
		c.fault(p.File, line, column, "policy "+string(p.ID)+": "+text, fault.hint(c.schema))
	}
}

// typeErrors returns the validator's errors without their common prefix.
func typeErrors(id string, err error) []string {
	var all []string
	for _, line := range slices.Sorted(strings.Lines(err.Error())) {
		all = append(all, strings.TrimPrefix(strings.TrimSpace(line), fmt.Sprintf("for policy `%s`, ", id)))
	}
	return slices.Compact(all)
}

// isConsequence reports whether an error only follows from other errors, if there are any.
func isConsequence(said string) bool {
	return strings.HasPrefix(said, "unable to find an applicable action")
}

// A typeError is an error message of the validator and its policy. cedar-go's errors have no fields.
type typeError struct {
	message string
	policy  cedarsyntax.Tokens
}

var (
	saysEntity    = regexp.MustCompile("^unrecognized (?:action|entity type) `(.+)`$")
	saysAction    = regexp.MustCompile("^unrecognized action `.*::\"(.*)\"`$")
	saysType      = regexp.MustCompile("^unrecognized entity type `(.+)`$")
	saysAttribute = regexp.MustCompile("attribute `(?:[^`]*\\.)?([^`.]+)`")
	saysOfType    = regexp.MustCompile("^attribute `([^`.]+)` on entity type `([^`]+)` not found$")
	saysOfContext = regexp.MustCompile("^attribute `([^`.]+)` in context for (.+) not found$")
	saysOptional  = regexp.MustCompile("optional attribute `([^`]+)`")
)

// offset returns the byte offset of the name in the policy's text, or -1.
func (f typeError) offset() int {
	if m := saysEntity.FindStringSubmatch(f.message); m != nil {
		name := cedarsyntax.Tokenize(cedarsyntax.Statement{Text: []byte(m[1])})
		return f.policy.Find(name.Texts()...)
	}
	if m := saysAttribute.FindStringSubmatch(f.message); m != nil {
		if at := f.policy.Find(".", m[1]); at >= 0 {
			return at + len(".")
		}
	}
	return -1
}

// hint suggests the intended name.
func (f typeError) hint(s *resolved.Schema) string {
	if m := saysAction.FindStringSubmatch(f.message); m != nil {
		return actionHint(s, m[1])
	}
	if m := saysType.FindStringSubmatch(f.message); m != nil {
		if whole := inNamespace(m[1], typeNames(s)); whole != "" {
			return fmt.Sprintf("did you mean %q?", whole)
		}
		return faults.DidYouMean(m[1], typeNames(s))
	}
	if m := saysOfType.FindStringSubmatch(f.message); m != nil {
		return faults.DidYouMean(m[1], attributeNames(s.Entities[cedar.EntityType(m[2])].Shape))
	}
	if m := saysOfContext.FindStringSubmatch(f.message); m != nil {
		return faults.DidYouMean(m[1], contextNames(s, m[2]))
	}
	if m := saysOptional.FindStringSubmatch(f.message); m != nil {
		return "ask first whether it is there, with has " + m[1]
	}
	return ""
}

// actionHint suggests an action of the schema, with its whole name if it is in a namespace.
func actionHint(s *resolved.Schema, id string) string {
	near := faults.Nearest(id, actionNames(s), len(id)/2)
	if near == "" {
		return ""
	}
	for _, uid := range slices.SortedFunc(maps.Keys(s.Actions), CompareUID) {
		if string(uid.ID) == near && uid.Type != actionType {
			return "did you mean " + uid.String() + "?"
		}
	}
	return fmt.Sprintf("did you mean %q?", near)
}

func actionNames(s *resolved.Schema) []string {
	var names []string
	for uid := range s.Actions {
		names = append(names, string(uid.ID))
	}
	return names
}

func typeNames(s *resolved.Schema) []string {
	var names []string
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(s.Entities)), maps.Keys(s.Enums)) {
		names = append(names, string(name))
	}
	return names
}

func attributeNames(record resolved.RecordType) []string {
	var names []string
	for name := range record {
		names = append(names, string(name))
	}
	return names
}

// contextNames lists the context attributes of an action, which is given in Cedar syntax.
func contextNames(s *resolved.Schema, action string) []string {
	for uid, a := range s.Actions {
		if uid.String() == action && a.AppliesTo != nil {
			return attributeNames(a.AppliesTo.Context)
		}
	}
	return nil
}

// inNamespace returns the known name in a namespace that ends with last, or "".
func inNamespace(last string, known []string) string {
	for _, name := range slices.Sorted(slices.Values(known)) {
		if strings.HasSuffix(name, "::"+last) {
			return name
		}
	}
	return ""
}
