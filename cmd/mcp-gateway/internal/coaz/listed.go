package coaz

import (
	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// uses are the methods that use the items of a list, and the member of params that
// names an item.
var uses = map[string]struct{ method, name string }{
	"tools/list":               {toolsCall, "name"},
	"prompts/list":             {"prompts/get", "name"},
	"resources/list":           {"resources/read", "uri"},
	"resources/templates/list": {"resources/read", "uri"},
}

// Holder returns the subject that calls of tools of a server have by default: the holder
// of the capabilities of their caller.
func (m *Mapper) Holder(call Call) (authzen.Subject, error) {
	a, err := m.run(call)
	if err != nil {
		return authzen.Subject{}, err
	}
	id, err := a.subject()
	return authzen.Subject{Type: a.subjectType(), ID: id}, err
}

// Listed returns the question whether the caller of a list may see an item: may the
// caller use it, as far as that is known without arguments? Call is that of the list;
// its Tool is the definition of the item if it is a tool. The result is nil if only
// arguments would tell, because a mapping other than the profile's decides on the
// tool. A listed item may still be denied.
func (m *Mapper) Listed(call Call, name string) (*authzen.EvaluationRequest, error) {
	use, ok := uses[call.Method]
	if !ok {
		return nil, ErrUnknownMethod
	}
	params, err := json.Marshal(map[string]string{use.name: name})
	if err != nil {
		return nil, &MappingError{"the name cannot be written", err}
	}
	call.Method, call.Params, call.Notification = use.method, params, false
	a, err := m.run(call)
	if err != nil {
		return nil, err
	}
	if call.Method != toolsCall {
		q, err := a.ask(a.defaults[call.Method])
		return q.Evaluation, err
	}
	if _, pinned := a.pinned[name]; pinned {
		return nil, nil
	}
	if a.Trust == Declared {
		if declared, err := a.own(name); err != nil || declared != nil {
			return nil, err
		}
	}
	q, err := a.standard(name)
	return q.Evaluation, err
}
