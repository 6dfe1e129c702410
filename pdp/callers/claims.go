package callers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Claims are those of a token. Numbers are jsontext.Values, as they were
// written.
type Claims map[string]any

const (
	// leeway is how far clocks may differ.
	leeway = time.Minute
	// lastSecond is the end of the year 9999: RFC 3339 writes no later time.
	lastSecond = 253402300799
)

// registered are the claims that a verifier, ours or another, reads by name.
var registered = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "cnf", "act"}

// readClaims reads a payload exactly: each name once, and none that is a
// registered one but for letter case, as there are readers that take it for that.
func readClaims(payload []byte) (Claims, error) {
	var claims map[string]any
	err := json.Unmarshal(payload, &claims, json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v *any) error {
		if dec.PeekKind() != '0' {
			return errors.ErrUnsupported
		}
		raw, err := dec.ReadValue()
		*v = raw.Clone()
		return err
	})))
	if err == nil && claims == nil {
		err = errors.New("must be an object")
	}
	for name := range claims {
		for _, known := range registered {
			if name != known && strings.EqualFold(name, known) {
				return nil, fmt.Errorf("there is %q, which others read as %s", name, known)
			}
		}
	}
	return claims, err
}

// Text returns a claim that is a name: a string with something in it, without
// control characters. It is an error for a token without it.
func (c Claims) Text(name string) (string, error) {
	text, ok := c[name].(string)
	switch {
	case !ok || text == "":
		return "", fmt.Errorf("the token has no %s", name)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", fmt.Errorf("%s of the token has a control character", name)
	}
	return text, nil
}

// ID returns a claim by which the bearer is known: a text. An address that the
// issuer has not verified is none, as anybody may have entered it.
func (c Claims) ID(name string) (string, error) {
	id, err := c.Text(name)
	if err == nil && name == "email" && c["email_verified"] != true {
		return "", errors.New("email_verified of the token is not true, so that its email says nothing")
	}
	return id, err
}

// listed reports whether a claim is that text, or a list of texts with it.
func (c Claims) listed(name, text string) bool {
	texts, err := c.texts(name)
	return err == nil && slices.Contains(texts, text)
}

// texts returns a claim that is a text or a list of them.
func (c Claims) texts(name string) (texts []string, err error) {
	list, ok := c[name].([]any)
	if !ok {
		list = []any{c[name]}
	}
	for _, element := range list {
		text, ok := element.(string)
		if !ok {
			return nil, fmt.Errorf("%s of the token is neither a text nor a list of them", name)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// time returns a claim that is a time (RFC 7519 2, NumericDate); nil for none.
func (c Claims) time(name string) (*time.Time, error) {
	claim, there := c[name]
	if !there {
		return nil, nil
	}
	number, ok := claim.(jsontext.Value)
	seconds, err := strconv.ParseFloat(string(number), 64)
	if !ok || err != nil || seconds < 0 || seconds > lastSecond {
		return nil, fmt.Errorf("%s of the token is not a time", name)
	}
	at := time.Unix(int64(seconds), 0)
	return &at, nil
}

// check reports a token that is not good now, or is good only for a holder who
// has not proved to be one: it is no bearer's (RFC 9449 7.1, RFC 8705 3).
func (c Claims) check(now time.Time, thumbprint string) error {
	until, errUntil := c.time("exp")
	since, errSince := c.time("nbf")
	_, errIssued := c.time("iat")
	switch err := errors.Join(errUntil, errSince, errIssued); {
	case err != nil:
		return err
	case until == nil:
		return errors.New("the token has no exp")
	case !now.Before(*until):
		return errors.New("the token has expired")
	case since != nil && since.After(now.Add(leeway)):
		return errors.New("the token is not valid yet")
	}
	confirmation, there := c["cnf"]
	if !there {
		return nil
	}
	methods, ok := confirmation.(map[string]any)
	if of, certificate := methods["x5t#S256"].(string); !ok || len(methods) != 1 || !certificate || thumbprint == "" || of != thumbprint {
		return errors.New("the token is bound to a key that the caller has not proved to hold")
	}
	return nil
}
