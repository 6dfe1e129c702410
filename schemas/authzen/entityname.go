package authzen

import (
	"regexp"
	"strconv"
	"strings"
)

// The forms of the name of an entity. The type may be in a namespace: A::B:id.
var (
	typeAndID   = regexp.MustCompile(`^([^:"]+(?:::[^:"]+)*):([^:].*)$`)
	cedarEntity = regexp.MustCompile(`^([^:"]+(?:::[^:"]+)*)::(".*"|[^"].*)$`)
)

// ParseEntityName reads the name of an entity as people write it: TYPE:ID, TYPE::ID or TYPE::"ID". ok is
// false for any other text.
func ParseEntityName(text string) (e Entity, ok bool) {
	parts := cedarEntity.FindStringSubmatch(text)
	if parts == nil || typeAndID.MatchString(text) {
		parts = typeAndID.FindStringSubmatch(text)
	}
	if parts == nil {
		return Entity{}, false
	}
	e = Entity{Type: parts[1], ID: parts[2]}
	if strings.HasPrefix(e.ID, `"`) {
		var err error
		if e.ID, err = strconv.Unquote(e.ID); err != nil || e.ID == "" {
			return Entity{}, false
		}
	}
	return e, true
}
