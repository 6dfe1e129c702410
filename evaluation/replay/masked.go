package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A Hidden is a masked part of a request that matters for the decision, and so prevents a replay.
type Hidden struct {
	Path   string `json:"path"`            // JSON Pointer into the request
	Policy string `json:"policy,omitzero"` // the policy that reads it; none if it matters before any policy is evaluated
}

func (h *Hidden) Error() string {
	if h.Policy == "" {
		return fmt.Sprintf("%v at %s", ErrMasked, h.Path)
	}
	return fmt.Sprintf("%v at %s, which policy %s reads", ErrMasked, h.Path, h.Policy)
}

func (h *Hidden) Unwrap() error { return ErrMasked }

// HiddenFrom returns a masked part of a request that matters for the snapshot's decision. It returns nil
// if the result is the same for any masked values. This is so if no policy whose scope the request
// satisfies names a masked value or a record that contains it. A policy that names one but does not
// evaluate that expression counts as well, because its value is unknown.
func HiddenFrom(s *snapshot.Snapshot, l *Logged) *Hidden {
	if len(l.Masked) == 0 || l.Request == nil {
		return nil
	}
	q, err := s.NewQuery(l.Request, l.Environment())
	if err != nil { // the mask has a different type than the value it hides
		return &Hidden{Path: l.Masked[0]}
	}
	for _, pointer := range l.Masked {
		spot, counts := spotOf(s, pointer)
		if counts == always {
			return &Hidden{Path: pointer}
		}
		if counts == never || q.Denied != "" {
			continue
		}
		for _, ordinal := range s.Policies.Candidates(q).Positions {
			if p := s.Policies.Ordered[ordinal]; slices.ContainsFunc(snapshot.AttributePaths(p.Syntax), spot.readBy) {
				return &Hidden{pointer, string(p.ID)}
			}
		}
	}
	return nil
}

// Whether a path in a request matters for its decision.
const (
	ifRead = iota // if a policy reads it
	always
	never
)

// A maskedPath is the path by which policies read a member of a request: below the context, or at an
// attribute of the principal or the resource.
type maskedPath struct {
	inContext bool
	names     []string
}

// spotOf converts a JSON Pointer into a request to the path by which policies read its target.
func spotOf(s *snapshot.Snapshot, pointer string) (p maskedPath, counts int) {
	path := slices.Collect(jsontext.Pointer(pointer).Tokens())
	if len(path) < 2 {
		return p, always
	}
	within, names := path[0], path[1:]
	if within != "context" {
		if names[0] != "properties" || len(names) < 2 {
			return p, always
		}
		names = names[1:]
	}
	if last := names[len(names)-1]; len(names) > 1 && (last == "id" || last == "type") {
		names = names[:len(names)-1] // it may be an entity's, and policies may read any attribute of that entity
	}
	switch within {
	case "context":
		switch names[0] {
		case snapshot.ContextApproval, snapshot.ContextCapability: // a claim; the log holds what was active
			return p, never
		case snapshot.ContextSupport:
			return p, always
		}
		return maskedPath{true, names}, ifRead
	case "action":
		return maskedPath{true, append([]string{snapshot.ContextAction}, names...)}, ifRead
	case "subject":
		if _, isParent := s.Settings.Parents[names[0]]; isParent {
			return p, always
		}
	case "resource":
	default:
		return p, always
	}
	return maskedPath{false, names}, ifRead
}

// readBy reports whether an attribute path reads the masked path, a prefix of it, or something below it.
// Each name of the attribute path may lead to an entity, whose attributes are the remaining names.
func (p maskedPath) readBy(c snapshot.AttributePath) bool {
	if p.inContext {
		// The service states the tool that a request is about by what the gateway says of it.
		called := p.names[0] == "gateway" && c.InContext && len(c.Names) > 0 && c.Names[0] == snapshot.ContextCalledTool
		return called || c.InContext && c.Matches(0, p.names)
	}
	for i := range c.Names {
		if c.Matches(i, p.names) {
			return true
		}
	}
	return false
}

// maskedIn returns the masked members of an entry that belong to a request, as JSON Pointers into the
// request. Item n of a batch has its own members and those of the batch.
func maskedIn(masked []string, item int) (own []string) {
	const request, items = "/request", "/request/evaluations/"
	prefix := fmt.Sprintf("%s%d", items, item)
	for _, pointer := range masked {
		if inItem, found := strings.CutPrefix(pointer, prefix+"/"); found && item >= 0 {
			own = append(own, "/"+inItem)
		} else if isOfRequest(pointer) && !strings.HasPrefix(pointer, items) {
			own = append(own, strings.TrimPrefix(pointer, request))
		}
	}
	return own
}

// isOfRequest reports whether a JSON Pointer into an entry points into its request.
func isOfRequest(pointer string) bool {
	return pointer == "/request" || strings.HasPrefix(pointer, "/request/")
}

// maskedResult returns the path of a masked part of an entry's result, or "".
func maskedResult(masked []string) string {
	for _, pointer := range masked {
		if !isOfRequest(pointer) && pointer != "/request_id" {
			return pointer
		}
	}
	return ""
}
