package coaz

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Parts of a request, and of each entry of a batch.
const (
	partSubject     = "subject"
	partAction      = "action"
	partResource    = "resource"
	partContext     = "context"
	partEvaluations = "evaluations"
)

// A mapping is a compiled mapping.
type mapping struct {
	dialect Dialect
	digest  string // of the text, "sha256:…"; "" for the gateway's own
	parts   map[string]node
	entries []map[string]node // of evaluations; nil for one evaluation
	server  bool              // the resource is the server itself
}

// enveloped compiles a mapping of the current draft: an object whose only member names
// the API.
func (c *compiler) enveloped(text jsontext.Value) (*mapping, error) {
	envelope, err := readMapping(text)
	if err != nil {
		return nil, err
	}
	if len(envelope) != 1 {
		return nil, unmapped("the mapping must have one member, evaluation or evaluations, and has %d", len(envelope))
	}
	for name, body := range envelope {
		switch name {
		case "evaluation", partEvaluations:
			r := &reader{compiler: c, language: marked}
			return r.mapping("/"+name, body, name == partEvaluations)
		default:
			return nil, unmapped("the mapping is of %q: it must be of evaluation or evaluations", name)
		}
	}
	panic("unreachable: the envelope has a member")
}

// readMapping returns the members of a mapping. A mapping that is too long is an
// error.
func readMapping(text jsontext.Value) (members, error) {
	if len(text) > maxMapping {
		return nil, unmapped("the mapping has more than %d bytes", maxMapping)
	}
	m, err := readMembers(text)
	if err != nil || text.Kind() != '{' {
		return nil, &MappingError{"the mapping is not an object", err}
	}
	return m, nil
}

// mapping compiles the body of a mapping.
func (r *reader) mapping(at string, body jsontext.Value, many bool) (*mapping, error) {
	m := &mapping{}
	members, err := readMembers(body)
	if err != nil || body.Kind() != '{' {
		return nil, &MappingError{at + " is not an object", err}
	}
	if many {
		if m.entries, err = r.entries(at, members[partEvaluations]); err != nil {
			return nil, err
		}
		delete(members, partEvaluations)
	}
	m.parts, err = r.parts(at, members)
	return m, err
}

func (r *reader) entries(at string, text jsontext.Value) (all []map[string]node, err error) {
	var entries []jsontext.Value
	if text.Kind() != '[' {
		return nil, unmapped("%s/evaluations is not an array", at)
	}
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, &MappingError{at + " cannot be read", err}
	}
	if len(entries) == 0 || len(entries) > maxEntries {
		return nil, unmapped("%s/evaluations has %d entries: there must be 1 to %d", at, len(entries), maxEntries)
	}
	for i, text := range entries {
		place := at + "/evaluations/" + strconv.Itoa(i)
		entry, err := readMembers(text)
		if err != nil || text.Kind() != '{' {
			return nil, &MappingError{place + " is not an object", err}
		}
		if _, named := entry[partSubject]; named {
			return nil, unmapped("%s names a subject: there is one for the whole call", place)
		}
		parts, err := r.parts(place, entry)
		if err != nil {
			return nil, err
		}
		all = append(all, parts)
	}
	return all, nil
}

func (r *reader) parts(at string, members members) (map[string]node, error) {
	if err := members.only(at, partSubject, partAction, partResource, partContext); err != nil {
		return nil, err
	}
	parts := make(map[string]node)
	for _, name := range members.names() {
		n, err := r.value(at+"/"+name, members[name], name != partContext, maxLevels)
		if err != nil {
			return nil, err
		}
		parts[name] = n
	}
	return parts, nil
}

// anchor makes the subject's id the caller's if it is written as the claim sub. The
// issuer and the operator choose the claim with the caller's id.
func (m *mapping) anchor() {
	subject, _ := m.parts[partSubject].(object)
	for i, f := range subject {
		if e, is := f.value.(*expression); is && f.name == "id" && e.claim == claimSub {
			subject[i].value = caller{}
		}
	}
}

const claimSub = "sub"

// caller resolves to the id of the caller.
type caller struct{}

func (caller) resolve(in *inputs) (jsontext.Value, error) {
	if in.caller == "" {
		return nil, nil
	}
	return jsontext.AppendQuote(nil, in.caller)
}
