package decisionlog

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// mask returns a masked request and the JSON Pointers, within the line, of the masked values.
func (m *masker) mask(request jsontext.Value) (jsontext.Value, []string, error) {
	masked, at, _, err := m.maskRequest(request)
	return masked, at, err
}

// maskRequest is mask that also returns the masked values.
func (m *masker) maskRequest(request jsontext.Value) (masked jsontext.Value, at []string, known secrets, err error) {
	if !m.suspects(request) {
		return request, nil, nil, nil
	}
	masked, at, known, err = m.maskIn("/request", request, nil)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("mask request: %w", err)
	}
	return masked, at, known, nil
}

// maskIn masks a value at a place of the line: parts that look like secrets and parts that contain
// a known secret.
func (m *masker) maskIn(place string, value jsontext.Value, known secrets) (jsontext.Value, []string, secrets, error) {
	s := m.states.Get().(*maskState)
	defer m.states.Put(s)
	s.known, s.pairs = known, nil
	for again := true; again; {
		s.begin(place, value)
		pairs := len(s.pairs)
		for s.dec.StackDepth() > 0 || s.dec.InputOffset() == 0 {
			if err := s.step(m); err != nil {
				return nil, nil, nil, err
			}
		}
		again = len(s.pairs) > pairs
	}
	if s.masked == nil {
		return value, nil, nil, nil
	}
	return append(s.out, value[s.copied:]...), s.masked, s.found, nil
}

// suspects reports whether a request may contain a secret. It runs for every request and only
// searches for the request's strings.
func (m *masker) suspects(request jsontext.Value) bool {
	if bytes.IndexByte(request, '\\') >= 0 || bytes.Contains(request, tokenStart) || hasUserinfo(request) || m.hasParameter(request) {
		return true
	}
	for rest := request; ; {
		begin := bytes.IndexByte(rest, '"')
		if begin < 0 {
			return false
		}
		rest = rest[begin+1:]
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			return true
		}
		if m.secret(rest[:end]) && !isCount(rest[:end], rest[end+1:]) || string(rest[:end]) == proofName {
			return true
		}
		rest = rest[end+1:]
	}
}

// isCount reports whether name is that of a count of tokens, judged by the text after it.
func isCount(name, behind []byte) bool {
	return len(behind) > 1 && behind[0] == ':' && '0' <= behind[1] && behind[1] <= '9' && endsPlainly(name, countName)
}

// suspectText reports whether a text may contain a secret. It is a cheap filter.
func suspectText(text string) bool {
	return strings.Contains(text, "eyJ") || strings.Contains(text, "://") || strings.IndexByte(text, '"') >= 0 || strings.IndexByte(text, '?') >= 0
}

// secretText reports whether a text contains a secret: a token, the password of a URL, a masked
// parameter of a URL's query, or a masked member of JSON.
func (m *masker) secretText(text []byte) bool {
	return bytes.Contains(text, tokenStart) && tokenShape.Match(text) || hasUserinfo(text) || m.hasParameter(text) || m.hasMember(text)
}

// hasParameter reports whether a text contains the query of a URL with a parameter whose name is
// masked.
func (m *masker) hasParameter(text []byte) bool {
	_, rest, found := bytes.Cut(text, []byte{'?'})
	for found && len(rest) > 0 {
		end := bytes.IndexAny(rest, "&;?#\" \r\n\t")
		if end < 0 {
			end = len(rest)
		}
		name, value, _ := bytes.Cut(rest[:end], []byte{'='})
		number := len(value) > 0 && '0' <= value[0] && value[0] <= '9' && endsPlainly(name, countName)
		if len(value) > 0 && !number && m.secret(name) {
			return true
		}
		rest = rest[min(end+1, len(rest)):]
	}
	return false
}

// hasMember reports whether a text contains something that looks like a masked member of JSON, at
// any level of quoting, or is JSON with masked parts.
func (m *masker) hasMember(text []byte) bool {
	if bytes.IndexByte(text, '"') < 0 {
		return false
	}
	for rest := text; ; {
		begin := bytes.IndexByte(rest, '"')
		if begin < 0 {
			break
		}
		rest = rest[begin+1:]
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			break
		}
		behind := bytes.TrimLeft(rest[end+1:], " \t\r\n")
		if name := bytes.TrimRight(rest[:end], `\`); len(behind) > 0 && behind[0] == ':' && m.secret(name) {
			return true
		}
		rest = rest[end:]
	}
	if inner := bytes.TrimSpace(text); inner[0] == '{' || inner[0] == '[' {
		_, masked, _ := m.mask(slices.Clone(inner))
		return masked != nil
	}
	return false
}

// hasUserinfo reports whether a text contains a URL with a password.
func hasUserinfo(text []byte) bool { return len(passwords(text, 1)) > 0 }

// passwords returns up to most passwords of the URLs in a text.
func passwords(text []byte, most int) (all [][]byte) {
	for len(all) < most {
		_, rest, found := bytes.Cut(text, []byte("://"))
		if !found {
			break
		}
		text = rest
		if end := bytes.IndexAny(rest, "/?#\"\\ \t\r\n<>"); end >= 0 {
			rest = rest[:end]
		}
		if at := bytes.LastIndexByte(rest, '@'); at >= 0 {
			if _, password, _ := bytes.Cut(rest[:at], []byte{':'}); len(password) > 0 {
				all = append(all, password)
			}
		}
	}
	return all
}

// A maskState is a value while parts of it are masked.
type maskState struct {
	place  string // JSON Pointer of the value in the line
	in     jsontext.Value
	reader bytes.Buffer // reads in
	dec    jsontext.Decoder
	text   []byte // scratch
	out    jsontext.Value
	copied int64 // length of the part of in that is in out, copied or masked
	masked []string
	found  secrets         // values that were masked
	known  secrets         // values that are masked wherever they occur
	pairs  map[string]bool // objects with a member that names a secret
}

func (s *maskState) begin(place string, value jsontext.Value) {
	s.place, s.in, s.out, s.copied, s.masked, s.found = place, value, nil, 0, nil, nil
	s.reader = *bytes.NewBuffer(value)
	s.dec.Reset(&s.reader)
}

// step processes the next token, or the complete value of a masked member.
func (s *maskState) step(m *masker) error {
	switch kind := s.dec.PeekKind(); {
	case kind == '0' && s.known != nil:
		raw, err := s.dec.ReadValue()
		if err != nil || !s.known.in(raw) {
			return err
		}
		return s.replace(m, raw)
	case kind != '"':
		_, err := s.dec.ReadToken()
		return err
	}
	raw, err := s.dec.ReadValue()
	if err != nil {
		return err
	}
	if s.text, err = jsontext.AppendUnquote(s.text[:0], raw); err != nil {
		return err
	}
	if s.atName() {
		return s.name(m, raw)
	}
	if m.secretText(s.text) || s.known.in(s.text) {
		return s.replace(m, raw)
	}
	if m.secret(s.text) {
		s.pair()
	}
	return nil
}

// name processes the name of a member, read last. It masks the value if the name is that of a
// secret, and masks the name itself if it contains one.
func (s *maskState) name(m *masker, raw jsontext.Value) error {
	if m.secretText(s.text) || s.known.in(s.text) {
		if err := s.replace(m, raw); err != nil {
			return err
		}
		value, err := s.dec.ReadValue()
		if err != nil {
			return err
		}
		at := s.masked[len(s.masked)-1]
		if err := s.replace(m, value); err != nil {
			return err
		}
		s.masked = append(s.masked[:len(s.masked)-2], at)
		return nil
	}
	isCount := s.dec.PeekKind() == '0' && endsPlainly(s.text, countName)
	if m.secret(s.text) && !isCount && !s.isDeclaration() || s.isPaired() || s.isProof() {
		value, err := s.dec.ReadValue()
		if err != nil {
			return err
		}
		return s.replace(m, value)
	}
	return nil
}

// proofName is the name of the proof in the claim of a capability.
const proofName = "proof"

// isProof reports whether the member name read last is that of a nonce or a signature in the claim of a
// capability.
func (s *maskState) isProof() bool {
	if string(s.text) != "nonce" && string(s.text) != "signature" {
		return false
	}
	object, _ := cutPointer(s.dec.StackPointer())
	return strings.HasSuffix(string(object), "/context/capability/"+proofName)
}

// isDeclaration reports whether the member name read last is that of what a tool declares of who has
// to agree to its calls: people who approve read it, and it has no secret of its own.
func (s *maskState) isDeclaration() bool {
	if string(s.text) != "authorization" || s.dec.PeekKind() != '{' {
		return false
	}
	object, _ := cutPointer(s.dec.StackPointer())
	return strings.HasSuffix(string(object), "/context/gateway")
}

// Names of the two members of an object that hold a name and its value.
var (
	naming  = []string{"name", "key", "field", "header", "parameter", "param", "attribute"}
	valuing = []string{"value", "values", "val", "content", "data"}
)

// pair records that an object names a secret with the string read last.
func (s *maskState) pair() {
	if kind, _ := s.dec.StackIndex(s.dec.StackDepth()); kind != '{' {
		return
	}
	if object, name := cutPointer(s.dec.StackPointer()); slices.Contains(naming, plainName(name)) && !s.pairs[object] {
		if s.pairs == nil {
			s.pairs = make(map[string]bool)
		}
		s.pairs[object] = true
	}
}

// isPaired reports whether the member name read last is that of the value of a secret that another
// member names.
func (s *maskState) isPaired() bool {
	if len(s.pairs) == 0 {
		return false
	}
	object, name := cutPointer(s.dec.StackPointer())
	return s.pairs[object] && slices.Contains(valuing, plainName(name))
}

func cutPointer(p jsontext.Pointer) (object, name string) {
	cut := strings.LastIndexByte(string(p), '/')
	return string(p[:max(cut, 0)]), string(p[cut+1:])
}

// atName reports whether the string read last is the name of a member.
func (s *maskState) atName() bool {
	kind, length := s.dec.StackIndex(s.dec.StackDepth())
	return kind == '{' && length%2 == 1
}

// replace replaces the name or value read last by its mask.
func (s *maskState) replace(m *masker, value jsontext.Value) error {
	mask, err := m.maskOf(value)
	if err != nil {
		return err
	}
	s.found = s.found.add(value)
	end := s.dec.InputOffset()
	s.out = append(s.out, s.in[s.copied:end-int64(len(value))]...)
	s.out = append(append(append(s.out, '"'), mask...), '"')
	s.copied = end
	place := s.dec.StackPointer()
	if s.atName() {
		object, _ := cutPointer(place)
		place = jsontext.Pointer(object + "/" + mask)
	}
	s.masked = append(s.masked, s.place+string(place))
	return nil
}

// maskOf returns the mask of a value.
func (m *masker) maskOf(value jsontext.Value) (string, error) {
	canonical := slices.Clone(value)
	if err := canonical.Canonicalize(); err != nil {
		return "", err
	}
	sum := hmac.New(sha256.New, m.key)
	sum.Write(canonical)
	return "masked:" + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16]), nil
}
