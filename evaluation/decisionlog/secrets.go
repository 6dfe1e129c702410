package decisionlog

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// secrets are texts that were masked in a request. maskRest searches for them in the rest of the
// entry, such as a filled obligation or an error with a quotation.
type secrets []string

const (
	shortSecret = 3  // shorter secrets are found only as a complete text
	longSecret  = 32 // for longer secrets, the search uses a prefix of this length
	mostURLs    = 100
)

// add adds the texts of a value: its strings and numbers, and secrets within a string.
func (s secrets) add(value jsontext.Value) secrets {
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return s
		}
		switch token.Kind() {
		case '"':
			s = s.addText(token.String())
		case '0':
			s = append(s, token.String())
		}
	}
}

func (s secrets) addText(text string) secrets {
	if text == "" {
		return s
	}
	quoted := strconv.Quote(text)
	s = append(s, text, quoted[1:len(quoted)-1])
	if escaped, err := jsontext.AppendQuote(nil, text); err == nil {
		s = append(s, string(escaped[1:len(escaped)-1]))
	}
	for _, token := range tokenShape.FindAllString(text, mostURLs) {
		s = append(s, token)
	}
	for _, password := range passwords([]byte(text), mostURLs) {
		s = append(s, string(password))
	}
	return slices.Compact(s)
}

// in reports whether a text contains a secret.
func (s secrets) in(text []byte) bool {
	for _, secret := range s {
		switch {
		case len(secret) < shortSecret:
			if string(text) == secret {
				return true
			}
		case bytes.Contains(text, []byte(secret[:min(len(secret), longSecret)])):
			return true
		}
	}
	return false
}

// maskRest masks copies of the request's secrets in the rest of the entry, and secrets in the id of
// the request.
func (m *masker) maskRest(e *Entry, known secrets) error {
	if text := []byte(e.RequestID); m.secretText(text) || known.in(text) {
		mask, err := m.maskText(e.RequestID)
		if err != nil {
			return err
		}
		e.RequestID = mask
		e.Masked = append(slices.Clip(e.Masked), "/request_id")
	}
	if known == nil {
		return nil
	}
	if e.Result != nil {
		result, at, err := m.maskResult("", *e.Result, known)
		if err != nil {
			return err
		}
		e.Result, e.Masked = &result, append(slices.Clip(e.Masked), at...)
	}
	results := slices.Clone(e.Evaluations)
	for i := range results {
		result, at, err := m.maskResult(fmt.Sprintf("/evaluations/%d", i), results[i], known)
		if err != nil {
			return err
		}
		results[i], e.Masked = result, append(slices.Clip(e.Masked), at...)
	}
	e.Evaluations = results
	return nil
}

// maskResult masks known secrets in a result at a place of the line. It returns the JSON Pointers
// of the masked values.
func (m *masker) maskResult(place string, r Result, known secrets) (masked Result, at []string, err error) {
	r.Errors = slices.Clone(r.Errors)
	for i := range r.Errors {
		if !known.in([]byte(r.Errors[i].Message)) {
			continue
		}
		if r.Errors[i].Message, err = m.maskText(r.Errors[i].Message); err != nil {
			return r, nil, err
		}
		at = append(at, fmt.Sprintf("%s/errors/%d/message", place, i))
	}
	r.Obligations = slices.Clone(r.Obligations)
	for i, o := range r.Obligations {
		properties, where, _, err := m.maskIn(fmt.Sprintf("%s/obligations/%d/properties", place, i), o.Properties, known)
		if err != nil && o.Properties != nil {
			return r, nil, fmt.Errorf("mask obligation: %w", err)
		}
		if err == nil {
			r.Obligations[i].Properties, at = properties, append(at, where...)
		}
	}
	if r.Shadow != nil {
		shadow := *r.Shadow
		result, where, err := m.maskResult(place+"/shadow", shadow.Result, known)
		if err != nil {
			return r, nil, err
		}
		shadow.Result = result
		r.Shadow, at = &shadow, append(at, where...)
	}
	return r, at, nil
}

// maskText returns the mask of a text.
func (m *masker) maskText(text string) (string, error) {
	quoted, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return "", err
	}
	return m.maskOf(quoted)
}
