package catalog

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/schemas/jsonobject"
)

// An itemKind is something that servers list.
type itemKind struct {
	method string // that lists it
	items  string // member of the result with the items
	name   string // member of an item that names it
	list   string // suffix of the name of the pinned list
	max    int    // items of a server, seen within keptPlace
	// members are those of an item that are pinned; nil is all. Other members of a
	// resource, such as its size, change with its content.
	members []string
	// unlisted: an item that is not listed may be used. Templates lead to such
	// resources.
	unlisted bool
}

var kinds = []itemKind{
	{method: "tools/list", items: "tools", name: "name", max: maxTools},
	{method: "prompts/list", items: "prompts", name: "name", list: "/prompts", max: maxTools},
	{method: "resources/list", items: "resources", name: "uri", list: "/resources", max: maxResources, members: []string{"uri", "name", "title", "description"}, unlisted: true},
	{method: "resources/templates/list", items: "resourceTemplates", name: "uriTemplate", list: "/templates", max: maxTools},
}

// suffixInstructions names the pinned instructions of a server.
const suffixInstructions = "/instructions"

// instructions is the kind of the instructions of a server, which has one item.
var instructions = itemKind{list: suffixInstructions, name: "name", max: 1}

// kindOf returns the kind that a method lists.
func kindOf(method string) (itemKind, bool) {
	i := slices.IndexFunc(kinds, func(k itemKind) bool { return k.method == method })
	if i < 0 {
		return itemKind{}, false
	}
	return kinds[i], true
}

// Lists returns the names of the pinned lists of a server. That of its tools is the
// name of the server; the others are SERVER/prompts, SERVER/resources,
// SERVER/templates and SERVER/instructions.
func Lists(server string) (names []string) {
	for _, k := range kinds {
		names = append(names, server+k.list)
	}
	return append(names, server+suffixInstructions)
}

// pinned returns the part of an item that is pinned.
func (k itemKind) pinned(item jsontext.Value) (jsontext.Value, error) {
	if k.members == nil {
		return item, nil
	}
	members, err := jsonobject.Parse(item)
	if err != nil {
		return nil, err
	}
	for name := range members {
		if !slices.Contains(k.members, name) {
			delete(members, name)
		}
	}
	return members.Encode()
}

// Listed returns why an item may not be used that the server lists under a method,
// or nil. An item that the server has not listed yet may be used, unless the operator
// has to accept everything: nothing is said of it that could have changed.
func (c *Catalog) Listed(server, method, name string) error {
	k, ok := kindOf(method)
	if !ok {
		return nil
	}
	_, err := c.standing(server+k.list, name)
	switch {
	case !errors.Is(err, ErrUnknown):
		return err
	case k.unlisted || !c.Accepted:
		return nil
	}
	return ErrProposed
}

// Instructions returns the result of initialize or server/discover without
// instructions that differ from the pinned ones. Models read instructions, as they
// read the definitions of tools.
func (c *Catalog) Instructions(server string, result jsontext.Value) (jsontext.Value, error) {
	members, err := jsonobject.Parse(result)
	if err != nil || members["instructions"] == nil {
		return result, err
	}
	item, err := jsonobject.Object{"name": jsontext.Value(`"instructions"`), "instructions": members["instructions"]}.Encode()
	if err != nil {
		return nil, err
	}
	if err := c.observe(server, instructions, []jsontext.Value{item}); err != nil {
		return nil, err
	}
	switch _, err := c.standing(server+suffixInstructions, "instructions"); {
	case isWithheld(err):
		members.Remove("instructions")
		return members.Encode()
	default:
		return result, err
	}
}
