package clientconfig

import (
	"bytes"
	"regexp"
	"slices"

	"github.com/tailscale/hujson"
)

// Bytes returns the file.
func (f *File) Bytes() []byte {
	if f.root.Value == nil {
		return f.text
	}
	return f.root.Pack()
}

// Wrap makes a server on standard input and output one that a command runs: the
// client starts the command with args, followed by what it started before.
func (s *Server) Wrap(command string, args ...string) {
	entry := s.entry.Value.(*hujson.Object)
	own := member(entry, "command")
	before := own.Value
	own.Value = hujson.String(command)
	list := member(entry, "args")
	if list == nil {
		list = insertAfter(entry, "command", "args")
		list.Value = &hujson.Array{}
	}
	array := list.Value.(*hujson.Array)
	inserted := make([]hujson.Value, 0, len(args)+1+len(array.Elements))
	for _, arg := range args {
		inserted = append(inserted, hujson.Value{Value: hujson.String(arg)})
	}
	inserted = append(inserted, hujson.Value{Value: before})
	separate(inserted, array)
	array.Elements = append(inserted, array.Elements...)
	s.Args = append(append(slices.Clone(args), s.Command), s.Args...)
	s.Command = command
}

// separate gives new elements the white space of those that they come before.
func separate(inserted []hujson.Value, array *hujson.Array) {
	first := hujson.Extra{}
	if len(array.Elements) > 0 {
		first = space(array.Elements[0].BeforeExtra)
	}
	others := first
	if !bytes.ContainsRune(first, '\n') {
		others = hujson.Extra(" ")
	}
	for i := range inserted {
		inserted[i].BeforeExtra = others
	}
	inserted[0].BeforeExtra = first
	if len(array.Elements) > 0 && len(space(array.Elements[0].BeforeExtra)) == len(array.Elements[0].BeforeExtra) {
		array.Elements[0].BeforeExtra = others
	}
}

// comments are those of an Extra.
var comments = regexp.MustCompile(`//[^\n]*|/\*(?s:.*?)\*/`)

// space returns the white space of an Extra without its comments.
func space(extra hujson.Extra) hujson.Extra {
	plain := comments.ReplaceAll(extra, nil)
	if at := bytes.LastIndexByte(plain, '\n'); at >= 0 {
		end := []byte("\n")
		if at > 0 && plain[at-1] == '\r' {
			end = []byte("\r\n")
		}
		return append(end, plain[at+1:]...)
	}
	return plain
}

// insertAfter adds a member after another, and returns its value.
func insertAfter(object *hujson.Object, after, name string) *hujson.Value {
	at := slices.IndexFunc(object.Members, func(m hujson.ObjectMember) bool { return text(&m.Name) == after })
	before := &object.Members[at]
	added := hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: space(before.Name.BeforeExtra), Value: hujson.String(name)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" ")},
	}
	if len(added.Name.BeforeExtra) == 0 {
		added.Name.BeforeExtra = hujson.Extra(" ")
	}
	added.Value.AfterExtra, before.Value.AfterExtra = before.Value.AfterExtra, nil
	object.Members = slices.Insert(object.Members, at+1, added)
	return &object.Members[at+1].Value
}

// Point makes a server over HTTP one at another URL, without headers.
func (s *Server) Point(url string) {
	entry := s.entry.Value.(*hujson.Object)
	member(entry, "url").Value = hujson.String(url)
	remove(entry, "headers")
	s.URL, s.Headers = url, nil
}

// remove removes a member. A file without trailing commas gets none.
func remove(object *hujson.Object, name string) {
	at := slices.IndexFunc(object.Members, func(m hujson.ObjectMember) bool { return text(&m.Name) == name })
	if at < 0 {
		return
	}
	removed := object.Members[at]
	object.Members = slices.Delete(object.Members, at, at+1)
	if at < len(object.Members) {
		next := &object.Members[at].Name
		next.BeforeExtra = joined(removed.Name.BeforeExtra, next.BeforeExtra)
		return
	}
	if at > 0 {
		object.Members[at-1].Value.AfterExtra = removed.Value.AfterExtra
	}
	object.AfterExtra = joined(removed.Name.BeforeExtra, object.AfterExtra)
}

// joined returns the comments before a removed member with what came after it.
func joined(before, after hujson.Extra) hujson.Extra {
	if !comments.Match(before) {
		return after
	}
	kept := bytes.TrimRight(before, " \t\r\n")
	if bytes.HasPrefix(bytes.TrimLeft(after, " \t\r"), []byte("\n")) {
		return append(slices.Clone(kept), after...)
	}
	return append(append(slices.Clone(kept), '\n'), after...)
}

// Restore gives the servers for which changed says so the entries that they have in
// an earlier version of the file, and returns the names of those that it lacks.
func (f *File) Restore(earlier *File, changed func(*Server) bool) (missing []string) {
	for _, s := range f.Servers {
		if !changed(s) {
			continue
		}
		before := slices.IndexFunc(earlier.Servers, func(e *Server) bool { return e.Group == s.Group && e.Name == s.Name })
		if before < 0 || changed(earlier.Servers[before]) {
			missing = append(missing, s.Name)
			continue
		}
		s.entry.Value = earlier.Servers[before].entry.Value
	}
	return missing
}

// Masked returns the file as it may be shown: of its texts, only what tells what
// the client runs and where is legible.
func (f *File) Masked() []byte {
	if f.root.Value == nil {
		return f.text
	}
	legible := make(map[*hujson.Value]bool)
	for _, s := range f.Servers {
		for _, name := range []string{"type", "command", "args", "url"} {
			if v := member(s.entry.Value.(*hujson.Object), name); v != nil {
				for part := range v.All() {
					legible[part] = true
				}
			}
		}
	}
	return masked(&f.root, legible).Pack()
}

const mask = "***"

// masked returns a copy of a value in which other texts and numbers are masked. The
// names of members stay, and so do comments of servers.
func masked(v *hujson.Value, legible map[*hujson.Value]bool) hujson.Value {
	shown := *v
	shown.BeforeExtra, shown.AfterExtra = withoutComments(v.BeforeExtra), withoutComments(v.AfterExtra)
	switch value := v.Value.(type) {
	case *hujson.Object:
		copied := hujson.Object{AfterExtra: withoutComments(value.AfterExtra)}
		for i := range value.Members {
			m := &value.Members[i]
			name := m.Name
			name.BeforeExtra, name.AfterExtra = withoutComments(name.BeforeExtra), withoutComments(name.AfterExtra)
			copied.Members = append(copied.Members, hujson.ObjectMember{Name: name, Value: masked(&m.Value, legible)})
		}
		shown.Value = &copied
	case *hujson.Array:
		copied := hujson.Array{AfterExtra: withoutComments(value.AfterExtra)}
		for i := range value.Elements {
			copied.Elements = append(copied.Elements, masked(&value.Elements[i], legible))
		}
		shown.Value = &copied
	case hujson.Literal:
		switch {
		case !legible[v] && (value.Kind() == '"' || value.Kind() == '0'):
			shown.Value = hujson.String(mask)
		case value.Kind() == '"':
			shown.Value = hujson.String(MaskURL(value.String()))
		}
	}
	return shown
}

// secretInURL is the password or the query of a URL.
var secretInURL = regexp.MustCompile(`(://[^/?#@:]*):[^/?#]*@|\?.+$`)

// MaskURL returns a text without the password and the query, if it is a URL.
func MaskURL(text string) string {
	if !bytes.Contains([]byte(text), []byte("://")) {
		return text
	}
	return secretInURL.ReplaceAllStringFunc(text, func(part string) string {
		if part[0] == '?' {
			return "?" + mask
		}
		return secretInURL.ReplaceAllString(part, "$1:"+mask+"@")
	})
}

// withoutComments masks the text of comments, which may be settings that somebody
// has switched off. An Extra that is nil means something, and stays nil.
func withoutComments(extra hujson.Extra) hujson.Extra {
	if len(extra) == 0 {
		return extra
	}
	return comments.ReplaceAllFunc(extra, func(comment []byte) []byte {
		if bytes.HasPrefix(comment, []byte("//")) {
			return []byte("// " + mask)
		}
		return []byte("/* " + mask + " */")
	})
}
