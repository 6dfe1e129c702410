package snapshot

import (
	"github.com/cedar-policy/cedar-go"

	"github.com/policy-service/policy-service/evaluation/accesspolicy"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// ContextCalledTool is the context member where policies read the tool that a request is about, as
// SERVER:TOOL. Only the service sets it.
const ContextCalledTool = accesspolicy.CalledTool

// calledTool adds the tool that a request is about to the context, for access documents.
func (s *Snapshot) calledTool(shape *shape, request *authzen.EvaluationRequest, values cedar.RecordMap) {
	if _, declared := shape.member(accesspolicy.CalledTool); !declared || !s.statesCalledTool() {
		return
	}
	if tool, ok := s.toolOf(request); ok {
		values[accesspolicy.CalledTool] = cedar.String(tool)
	}
}

// toolOf returns the tool that a request is about. A resource that becomes a tool by an alias of its type
// is one, so that the alias is no way around a rule that denies.
func (s *Snapshot) toolOf(request *authzen.EvaluationRequest) (tool string, ok bool) {
	if tool, ok := request.Tool(); ok || s.Settings.TypeAliases[request.Resource.Type] == "" {
		return tool, ok
	}
	resolved := *request
	resolved.Resource.Type = s.Settings.TypeAliases[request.Resource.Type]
	return resolved.Tool()
}

// contextDependsOn reports whether the context of a search depends on the resource that it looks for,
// because that is the tool which the request is about.
func (s *Snapshot) contextDependsOn(q *SearchQuery) bool {
	if q.For != ForResource || !s.statesCalledTool() {
		return false
	}
	of, _ := s.toolOf(q.about("server:tool"))
	other, _ := s.toolOf(q.about("server:other"))
	return of != other
}

// statesCalledTool reports whether the service states the tool that a request is about. It does so for
// access documents.
func (s *Snapshot) statesCalledTool() bool { return s.accessDocuments }
