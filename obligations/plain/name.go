package plain

import (
	"strings"
	"unicode"
)

// Name returns a name for a sentence or a line of output. A name that could pass for the words around it, such as
// one with blanks or quotation marks, is in quotation marks, and so is one with escapes.
func Name(name string) string {
	if IsSimple(name) {
		return name
	}
	return Quoted(name)
}

// Quoted returns a text as [Text] does, in quotation marks. Those in it are escaped, so it ends where it seems to.
func Quoted(text string) string { return `"` + strings.ReplaceAll(Text(text), `"`, `\"`) + `"` }

// IsSimple reports whether a name is one word: letters, digits and the characters of addresses, with nothing that
// separates words.
func IsSimple(name string) bool {
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r) && !strings.ContainsRune("._-@:/+#|~=%$*&?!", r) || !Seen(r) {
			return false
		}
	}
	return name != ""
}
