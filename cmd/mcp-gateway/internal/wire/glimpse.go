package wire

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// A Glimpse is what is known of a message that is too large or nests too deep to be
// read. The message may be cut off.
type Glimpse struct {
	ID            jsontext.Value // nil if it was not seen
	Method        bool           // it is a request or a notification
	Result, Error bool           // it is a response with one of these
}

// IsResponse reports whether the message is a response.
func (g Glimpse) IsResponse() bool { return !g.Method && (g.Result || g.Error) }

// Look returns a Glimpse of a text, which may end anywhere.
func Look(text []byte) Glimpse {
	s := new(Scanner)
	s.Scan(text)
	return s.Glimpse()
}

// maxScanned bounds the part of a name or an id that a Scanner keeps, in bytes.
const maxScanned = 256

// A Scanner makes a Glimpse of a message of any size, part by part, and keeps little
// of it. Its zero value is ready for a message.
type Scanner struct {
	depth           int
	quoted, escaped bool
	token           []byte // of the outermost object: a name, or a value that is no object or array
	name            string // of the value, while one is read
	seen            Glimpse
	ended           bool
}

// Scan takes the next part of the message.
func (s *Scanner) Scan(part []byte) {
	for _, b := range part {
		if s.quoted {
			s.inString(b)
		} else {
			s.outside(b)
		}
	}
}

// Glimpse returns the result so far.
func (s *Scanner) Glimpse() Glimpse { return s.seen }

func (s *Scanner) inString(b byte) {
	s.keep(b)
	switch {
	case s.escaped:
		s.escaped = false
	case b == '\\':
		s.escaped = true
	case b == '"':
		s.quoted = false
	}
}

func (s *Scanner) outside(b byte) {
	switch b {
	case ' ', '\t', '\r', '\n':
		return
	case '{', '[':
		s.ended = s.ended || s.depth == 0 && b == '[' // no message
		s.keep(b)
		s.depth++
	case '}', ']':
		if s.depth--; s.depth == 0 {
			s.endValue()
			s.ended = true
		}
	case ':':
		if s.depth == 1 {
			s.name, s.token = string(s.token), nil
			s.see()
		}
	case ',':
		if s.depth == 1 {
			s.endValue()
		}
	default:
		s.quoted = b == '"'
		s.keep(b)
	}
}

// keep keeps a byte of a name or value of the outermost object.
func (s *Scanner) keep(b byte) {
	if s.depth == 1 && len(s.token) < maxScanned {
		s.token = append(s.token, b)
	}
}

// see records the name of a member.
func (s *Scanner) see() {
	if s.ended {
		return
	}
	switch s.name {
	case `"method"`:
		s.seen.Method = true
	case `"result"`:
		s.seen.Result = true
	case `"error"`:
		s.seen.Error = true
	}
}

// endValue ends a member. It ignores an id that is cut off or is not an id.
func (s *Scanner) endValue() {
	id := jsontext.Value(slices.Clone(s.token))
	if s.name == `"id"` && !s.ended && s.seen.ID == nil && len(id) < maxScanned && id.IsValid() && isID(id) {
		s.seen.ID = id
	}
	s.name, s.token = "", nil
}
