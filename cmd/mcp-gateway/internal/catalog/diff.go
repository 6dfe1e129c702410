package catalog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Diff returns how the listed definition differs from the pinned one: a line
// "- POINTER VALUE" for what is removed, and "+ POINTER VALUE" for what is added.
func (p *Pin) Diff() (lines []string) {
	was, is := map[jsontext.Pointer]string{}, map[jsontext.Pointer]string{}
	flatten(was, "", p.Definition)
	flatten(is, "", p.Listed)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		before, removed := was[at]
		after, added := is[at]
		if removed && added && before == after {
			continue
		}
		if removed {
			lines = append(lines, fmt.Sprintf("- %s %s", at, before))
		}
		if added {
			lines = append(lines, fmt.Sprintf("+ %s %s", at, after))
		}
	}
	return lines
}

// flatten adds the values of a JSON text that have no members, by their pointers.
func flatten(to map[jsontext.Pointer]string, at jsontext.Pointer, text jsontext.Value) {
	switch text.Kind() {
	case '{':
		var members map[string]jsontext.Value
		if json.Unmarshal(text, &members) == nil && len(members) > 0 {
			for name, value := range members {
				flatten(to, at.AppendToken(name), value)
			}
			return
		}
	case '[':
		var items []jsontext.Value
		if json.Unmarshal(text, &items) == nil && len(items) > 0 {
			for i, value := range items {
				flatten(to, at.AppendToken(fmt.Sprint(i)), value)
			}
			return
		}
	}
	if len(text) > 0 {
		to[at] = string(text)
	}
}
