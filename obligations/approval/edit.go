package approval

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// Members of the context of a submission that describe the arguments of a call.
const (
	memberArguments = "arguments"
	memberSchema    = "input_schema" // JSON Schema of arguments
	memberGateway   = "gateway"
	memberDigest    = "call_digest" // of memberGateway: of the call with its arguments
)

// An Edit has the arguments of a call as an approver changed them. The approval is for a call with
// these arguments only.
type Edit struct {
	Arguments jsontext.Value `json:"arguments"` // all of the call
	Changed   []string       `json:"changed"`   // names of those that differ
	Was       string         `json:"was"`       // digest of the arguments as requested
	Digest    string         `json:"digest"`    // digest of Arguments
}

// edited returns the edit of a decision, or nil if it changes nothing.
func (s *Service) edited(r *Request, d *Decision) (*Edit, error) {
	if d.Arguments == nil {
		return nil, nil
	}
	if d.Decision != decisionApprove {
		return nil, authzen.Invalid("/arguments", "is for the decision approve")
	}
	if r.Bulk {
		return nil, authzen.Invalid("/arguments", "is for a request without a list of items")
	}
	context, err := jsonobject.Parse(r.Context)
	if err != nil {
		return nil, err
	}
	was := context[memberArguments]
	is, err := jsonobject.Parse(was)
	if err != nil || was.Kind() != '{' {
		return nil, authzen.Invalid("/arguments", "cannot be changed: the context of the request has no object arguments")
	}
	changed, err := r.Items[0].change(is, d.Arguments)
	if err != nil || len(changed) == 0 {
		return nil, err
	}
	e := &Edit{Changed: changed}
	if e.Arguments, err = is.Encode(); err != nil {
		return nil, err
	}
	if e.Was, err = jsonobject.Digest(was); err != nil {
		return nil, authzen.Invalid("/arguments", "cannot be changed: those of the request are ambiguous")
	}
	if e.Digest, err = jsonobject.Digest(e.Arguments); err != nil {
		return nil, err
	}
	return e, s.checkArguments(context[memberSchema], e.Arguments)
}

// change sets arguments to other values, and returns the names of those that differ.
func (i *Item) change(arguments jsonobject.Object, values jsontext.Value) (changed []string, err error) {
	set, err := jsonobject.Parse(values)
	if err != nil || values.Kind() != '{' {
		return nil, authzen.Invalid("/arguments", "must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		path := "/arguments" + string(jsontext.Pointer("").AppendToken(name))
		if !slices.Contains(i.Terms.Edit, name) {
			return nil, authzen.Invalid(path, "cannot be changed: the template %s lets approvers change %s", i.Template, editable(i.Terms.Edit))
		}
		if _, err := jsonobject.Canonical(set[name]); err != nil {
			return nil, authzen.Invalid(path, "is not unambiguous JSON")
		}
		if was, there := arguments[name]; there && jsonobject.Equal(was, set[name]) {
			continue
		}
		arguments.Put(name, set[name])
		changed = append(changed, name)
	}
	return changed, nil
}

func editable(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// checkArguments refuses arguments that do not fit the schema of the submission, if it has one.
func (s *Service) checkArguments(schema, arguments jsontext.Value) error {
	if schema == nil {
		return nil
	}
	if s.config.CheckArguments == nil {
		return ErrUnsupported
	}
	path, err := s.config.CheckArguments(schema, arguments)
	if err != nil {
		return authzen.Invalid("/arguments"+path, "does not fit the input schema of the tool: %s", err)
	}
	return nil
}

// shown returns the context of an item for those who decide on it, with edited arguments.
func (i *Item) shown(context jsontext.Value) (jsontext.Value, error) {
	bound, err := i.Bound.of(context)
	if err != nil || i.Edit == nil {
		return bound, err
	}
	members, err := jsonobject.Parse(bound)
	if err != nil {
		return nil, err
	}
	if _, there := members[memberArguments]; there {
		members.Put(memberArguments, i.Edit.Arguments)
	}
	return members.Encode()
}

// coversEdited reports whether a request is the edited call: the PEP says that its arguments are the
// edited ones, and apart from them nothing differs from what was denied.
func (r *Request) coversEdited(i *Item, of *authzen.EvaluationRequest, digest string) bool {
	is, err := i.Bound.counting(of.Context, false)
	if err != nil || digest != i.Edit.Digest || !i.sameCall(r.Subject, of) {
		return false
	}
	if sent := is[memberArguments]; sent != nil && !jsonobject.Equal(sent, i.Edit.Arguments) {
		return false
	}
	bound, err := i.Bound.of(r.Context)
	if err != nil {
		return false
	}
	was, err := jsonobject.Parse(bound)
	return err == nil && maps.EqualFunc(withoutArguments(was), withoutArguments(is), jsonobject.Equal)
}

// withoutArguments removes from a context what arguments change.
func withoutArguments(context jsonobject.Object) jsonobject.Object {
	context.Remove(memberArguments)
	gateway, err := jsonobject.Parse(context[memberGateway])
	if err != nil || gateway[memberDigest] == nil {
		return context
	}
	gateway.Remove(memberDigest)
	if rest, err := gateway.Encode(); err == nil {
		context.Put(memberGateway, rest)
	}
	return context
}
