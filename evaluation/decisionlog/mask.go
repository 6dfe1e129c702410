package decisionlog

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/policy-service/policy-service/evaluation/durable"
)

// maskKeyFile is the file with the key of the masker.
const maskKeyFile = "mask.key"

// secretNames are endings of the names of members whose values are masked.
var secretNames = []string{
	"password", "passwords", "passwd", "pwd", "passphrase", "passphrases", "secret", "secrets", "token", "tokens",
	"authorization", "cookie", "cookies", "apikey", "apikeys", "accesskey", "accesskeys", "privatekey", "privatekeys",
	"secretkey", "secretkeys", "credential", "credentials", "passwordvalue", "secretvalue", "tokenvalue",
	"passwordlist", "secretlist", "tokenlist", "apikeylist", "credentiallist",
}

// Some names with such an ending are not secrets: "pass" must be a word of the name, and the value
// of a name that ends in "tokens" may be a count.
const (
	wordName  = "pass"
	countName = "tokens"
)

// tokenShape matches a JSON Web Token, alone or inside a text.
var (
	tokenStart = []byte("eyJ")
	tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`)
)

// A masker replaces values in requests that look like secrets before they are recorded. Equal
// values get equal masks. A mask reveals nothing without the masker's key.
type masker struct {
	key   []byte
	names [256][]ending // by last byte
	never []string

	states sync.Pool // holds *maskState
}

// An ending is the end of names of masked members, in the form of plainName.
type ending struct {
	name   string
	second byte // byte before the last, or 0
}

func endingOf(name string) ending {
	e := ending{name: name}
	if len(name) > 1 {
		e.second = name[len(name)-2]
	}
	return e
}

// newMasker returns the masker of the log in dir. It also masks members whose name ends in one of
// names, and never those in never.
func newMasker(dir string, names, never []string) (*masker, error) {
	key, err := maskKey(filepath.Join(dir, maskKeyFile))
	if err != nil {
		return nil, fmt.Errorf("masking key: %w", err)
	}
	m := &masker{key: key, never: plainNames(never)}
	for _, name := range slices.Concat(plainNames(names), secretNames, []string{wordName}) {
		if name != "" {
			last := name[len(name)-1]
			m.names[last] = append(m.names[last], endingOf(name))
		}
	}
	m.states.New = func() any { return new(maskState) }
	return m, nil
}

// maskKey reads the key at path, or creates one.
func maskKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
		return key, durable.ReplaceFile(path, key)
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

// plainName removes the differences between api_key, API-Key and apiKey.
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

// lastPlain returns the last byte of a name's plain form, or 0, and the rest of the name before it.
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

// secret reports whether the values of members with this name are masked.
func (m *masker) secret(name []byte) bool {
	last, before := lastPlain(name)
	endings := m.names[last]
	if endings == nil {
		return false
	}
	second, _ := lastPlain(before)
	for i := range endings {
		end := &endings[i]
		if end.second != second && end.second != 0 {
			continue
		}
		if endsPlainly(before, end.name[:len(end.name)-1]) && (end.name != wordName || isWord(name)) {
			return !slices.Contains(m.never, plainName(string(name)))
		}
	}
	return false
}

// isWord reports whether a name that ends in "pass" has it as a word, as pass, db_pass and dbPass
// do, and not as part of a word, as in bypass.
func isWord(name []byte) bool {
	_, name = lastPlain(name)
	_, name = lastPlain(name)
	_, name = lastPlain(name)
	first := bytes.TrimRight(name, "_-. ")
	begin := len(first) - 1
	return begin <= 0 || first[begin] == 'P' || strings.IndexByte("_-. ", first[begin-1]) >= 0
}

// endsPlainly reports whether the plain form of a name ends in end.
func endsPlainly(name []byte, end string) bool {
	for i := len(end) - 1; i >= 0; i-- {
		var last byte
		if last, name = lastPlain(name); last != end[i] {
			return false
		}
	}
	return true
}
