package decisionlog

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// maskKeyFile is the file of the key that masks.
const maskKeyFile = "mask.key"

// secretNames end the names of members whose values are masked.
var secretNames = []string{
	"password", "passwd", "pwd", "passphrase", "secret", "secrets", "token", "authorization", "cookie",
	"apikey", "accesskey", "privatekey", "secretkey", "credential", "credentials",
}

// tokenShape is what a JSON Web Token looks like, alone or behind a scheme.
var (
	tokenStart = []byte("eyJ")
	tokenShape = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`)
)

// A masker replaces what looks like a secret in requests before they are
// recorded. Equal values become equal masks, which tell nothing of the value
// to who does not have the key.
type masker struct {
	key   []byte
	names [256][]string // as plainName has them, by their last byte
	never []string

	states sync.Pool // of *maskState
}

// newMasker returns the masker of the log in dir, which also masks the members
// that names end, and none of those that never lists.
func newMasker(dir string, names, never []string) (*masker, error) {
	key, err := maskKey(filepath.Join(dir, maskKeyFile))
	if err != nil {
		return nil, fmt.Errorf("masking key: %w", err)
	}
	m := &masker{key: key, never: plainNames(never)}
	for _, name := range append(plainNames(names), secretNames...) {
		if name != "" {
			last := name[len(name)-1]
			m.names[last] = append(m.names[last], name)
		}
	}
	m.states.New = func() any { return new(maskState) }
	return m, nil
}

// maskKey reads the key at path, or makes one there.
func maskKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // it does not fail
		return key, replaceFile(path, key)
	}
	if err == nil && len(key) != sha256.Size {
		err = fmt.Errorf("%s has %d bytes, not %d", path, len(key), sha256.Size)
	}
	return key, err
}

func plainNames(names []string) []string {
	plain := make([]string, len(names))
	for i, name := range names {
		plain[i] = plainName(name)
	}
	return plain
}

// plainName is a name without what distinguishes api_key, API-Key and apiKey.
func plainName(name string) string {
	plain := make([]byte, 0, len(name))
	for rest := []byte(name); len(rest) > 0; {
		var last byte
		if last, rest = lastPlain(rest); last != 0 {
			plain = append(plain, last)
		}
	}
	slices.Reverse(plain)
	return string(plain)
}

// lastPlain returns the last byte of a name's plain form, 0 if it has none, and
// the name before it.
func lastPlain(name []byte) (last byte, before []byte) {
	for i := len(name) - 1; i >= 0; i-- {
		switch c := name[i]; {
		case c == '_' || c == '-' || c == '.' || c == ' ':
		case 'A' <= c && c <= 'Z':
			return c | 0x20, name[:i]
		default:
			return c, name[:i]
		}
	}
	return 0, nil
}

// secret reports whether the values of members of a name are masked.
func (m *masker) secret(name []byte) bool {
	last, before := lastPlain(name)
	for _, end := range m.names[last] {
		if endsPlainly(before, end[:len(end)-1]) {
			return !slices.Contains(m.never, plainName(string(name)))
		}
	}
	return false
}

// endsPlainly reports whether the plain form of a name has that end.
func endsPlainly(name []byte, end string) bool {
	for i := len(end) - 1; i >= 0; i-- {
		var last byte
		if last, name = lastPlain(name); last != end[i] {
			return false
		}
	}
	return true
}

// mask returns the request as it may be recorded, and where in the line
// something was masked.
func (m *masker) mask(request jsontext.Value) (jsontext.Value, []string, error) {
	if !m.suspects(request) {
		return request, nil, nil
	}
	s := m.states.Get().(*maskState)
	defer m.states.Put(s)
	s.begin(request)
	for s.dec.StackDepth() > 0 || s.dec.InputOffset() == 0 {
		if err := s.step(m); err != nil {
			return nil, nil, fmt.Errorf("mask request: %w", err)
		}
	}
	if s.masked == nil {
		return request, nil, nil
	}
	return append(s.out, request[s.copied:]...), s.masked, nil
}

// suspects reports whether there may be something to mask. It is asked of every
// request, and does not read more of it than where its strings are.
func (m *masker) suspects(request jsontext.Value) bool {
	if bytes.IndexByte(request, '\\') >= 0 || bytes.Contains(request, tokenStart) {
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
		if m.secret(rest[:end]) {
			return true
		}
		rest = rest[end+1:]
	}
}

// A maskState is a request of which a part is masked.
type maskState struct {
	in     jsontext.Value
	reader bytes.Buffer // of in
	dec    jsontext.Decoder
	text   []byte // scratch
	out    jsontext.Value
	copied int64 // how much of in is in out, or replaced there
	masked []string
}

func (s *maskState) begin(request jsontext.Value) {
	s.in, s.out, s.copied, s.masked = request, nil, 0, nil
	s.reader = *bytes.NewBuffer(request)
	s.dec.Reset(&s.reader)
}

// step takes the next token, or the whole value of a member that is masked.
func (s *maskState) step(m *masker) error {
	if s.dec.PeekKind() != '"' {
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
	switch {
	case !s.atName():
		if bytes.Contains(s.text, tokenStart) && tokenShape.Match(s.text) {
			return s.replace(m, raw)
		}
	case m.secret(s.text):
		value, err := s.dec.ReadValue()
		if err != nil {
			return err
		}
		return s.replace(m, value)
	}
	return nil
}

// atName reports whether the string that was read last is a member's name.
func (s *maskState) atName() bool {
	kind, length := s.dec.StackIndex(s.dec.StackDepth())
	return kind == '{' && length%2 == 1
}

// replace replaces the value that was read last by its mask.
func (s *maskState) replace(m *masker, value jsontext.Value) error {
	canonical := slices.Clone(value)
	if err := canonical.Canonicalize(); err != nil {
		return err
	}
	sum := hmac.New(sha256.New, m.key)
	sum.Write(canonical)
	end := s.dec.InputOffset()
	s.out = append(s.out, s.in[s.copied:end-int64(len(value))]...)
	s.out = fmt.Appendf(s.out, `"masked:%s"`, base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16]))
	s.copied = end
	s.masked = append(s.masked, "/request"+string(s.dec.StackPointer()))
	return nil
}
