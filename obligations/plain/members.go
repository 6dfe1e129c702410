package plain

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what [Members] says, in runes.
const (
	maxMembers = 512
	maxMember  = 64 // of one name, and of one value
)

// Members says in one line what the members of a JSON object are: "name: value,
// …", with the names in order. What is too long is cut off, each member for
// itself, so that none hides the others. Of anything else it says nothing.
func Members(object jsontext.Value) string {
	var all map[string]jsontext.Value
	if err := json.Unmarshal(object, &all); err != nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name].Clone()
		if err := value.Format(); err != nil { // which undoes escapes that need not be
			return ""
		}
		parts = append(parts, Cut(Text(name), maxMember)+": "+Cut(Text(string(value)), maxMember))
	}
	return Cut(strings.Join(parts, ", "), maxMembers)
}

// Cut returns text with no more than so many runes, of which an ellipsis is the
// last where there were more.
func Cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
