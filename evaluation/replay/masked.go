package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/policy-service/policy-service/evaluation/snapshot"
)

// A Hidden is what keeps a logged decision from being made again: a masked
// part of its request that counts for it.
type Hidden struct {
	Path   string `json:"path"`            // JSON Pointer into the request
	Policy string `json:"policy,omitzero"` // that reads it; none where it counts before any policy is asked
}

func (h *Hidden) Error() string {
	if h.Policy == "" {
		return fmt.Sprintf("%v at %s", ErrMasked, h.Path)
	}
	return fmt.Sprintf("%v at %s, which policy %s reads", ErrMasked, h.Path, h.Policy)
}

func (h *Hidden) Unwrap() error { return ErrMasked }

// HiddenFrom returns what of a masked decision counts for the snapshot, or nil
// where it comes out the same whatever stands behind the masks. That is so
// where no policy whose scope the request satisfies names what is masked, or
// what it is a part of. A policy that names it and does not come to read it
// counts as well: what it would read is not known.
func HiddenFrom(s *snapshot.Snapshot, l *Logged) *Hidden {
	if len(l.Masked) == 0 || l.Request == nil {
		return nil
	}
	q, err := s.NewQuery(l.Request, l.Environment())
	if err != nil { // the mask is not of the type that what it hides is
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

// Whether a spot in a request counts for its decision.
const (
	ifRead = iota // by a policy
	always
	never
)

// A spot is where policies find a member of a request: below the context, or
// at an attribute of the principal or the resource.
type maskedPath struct {
	inContext bool
	names     []string
}

// spotOf returns where policies find what a JSON Pointer into a request points
// at.
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
		names = names[:len(names)-1] // it may be that of an entity, of which any attribute may be read
	}
	switch within {
	case "context":
		switch names[0] {
		case snapshot.ContextApproval: // a claim; the approval that stood is logged
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

// readBy reports whether a chain reads what is at the spot, what it is a part
// of, or a part of it. A chain may come to an entity at each of its names, and
// read of that the rest.
func (p maskedPath) readBy(c snapshot.AttributePath) bool {
	if p.inContext {
		return c.InContext && c.Matches(0, p.names)
	}
	for i := range c.Names {
		if c.Matches(i, p.names) {
			return true
		}
	}
	return false
}

// maskedIn returns which of the masked members of an entry are in a request, as
// JSON Pointers into that. Item n of a batch has its own members and those of
// the batch.
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

// isOfRequest reports whether a JSON Pointer into an entry points into its
// request.
func isOfRequest(pointer string) bool {
	return pointer == "/request" || strings.HasPrefix(pointer, "/request/")
}

// maskedResult returns where in an entry something is masked that was decided,
// or "".
func maskedResult(masked []string) string {
	for _, pointer := range masked {
		if !isOfRequest(pointer) && pointer != "/request_id" {
			return pointer
		}
	}
	return ""
}
