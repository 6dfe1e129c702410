package plain

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of [Members], in runes.
const (
	maxMembers = 512
	maxMember  = 64 // of one name, and of one value
)

// Members returns the members of a JSON object in one line, "name: value, …", sorted by name. It
// truncates each member separately, so that none hides the others. For other values it returns "".
func Members(object jsontext.Value) string {
	var all map[string]jsontext.Value
	if err := json.Unmarshal(object, &all); err != nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name].Clone()
		if err := value.Format(); err != nil { // undoes unnecessary escapes
			return ""
		}
		parts = append(parts, Cut(Name(name), maxMember)+": "+Cut(Text(string(value)), maxMember))
	}
	return Cut(strings.Join(parts, ", "), maxMembers)
}

// Cut truncates text to at most most runes. The last of these is then an ellipsis.
func Cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
