package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A demand says what is wrong with the answers to the requests of a row.
type demand func([]answer) error

// each demands something of every answer.
func each(check func(answer) error) demand {
	return func(answers []answer) error {
		var errs []error
		for _, a := range answers {
			if err := check(a); err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", a, err))
			}
		}
		return errors.Join(errs...)
	}
}

// both makes two demands.
func both(one, other demand) demand {
	return func(answers []answer) error { return errors.Join(one(answers), other(answers)) }
}

// status demands one of the statuses and nothing of the body.
func status(wanted ...int) demand {
	return each(func(a answer) error {
		if !slices.Contains(wanted, a.status) {
			return fmt.Errorf("status is %d, want one of %d", a.status, wanted)
		}
		return nil
	})
}

// unauthorized demands that the caller is told how to authenticate.
var unauthorized = both(status(http.StatusUnauthorized), each(func(a answer) error {
	if a.header.Get("WWW-Authenticate") == "" {
		return errors.New("there is no WWW-Authenticate")
	}
	return nil
}))

// echoes demands the X-Request-ID that was sent.
var echoes = each(func(a answer) error {
	if got := a.header.Get("X-Request-ID"); got != a.request.id {
		return fmt.Errorf("X-Request-ID is %q, want %q", got, a.request.id)
	}
	return nil
})

// same demands that all answers have the same body, the order of members
// aside.
func same(answers []answer) error {
	first, err := canonical(answers[0])
	if err != nil {
		return err
	}
	for _, a := range answers[1:] {
		body, err := canonical(a)
		if err != nil {
			return err
		}
		if !bytes.Equal(first, body) {
			return fmt.Errorf("%v: the first answer was %s", a, first)
		}
	}
	return nil
}

func canonical(a answer) ([]byte, error) {
	body := jsontext.Value(bytes.Clone(a.body))
	if err := body.Canonicalize(); err != nil {
		return nil, fmt.Errorf("%v: %w", a, err)
	}
	return body, nil
}

// decides demands a decision.
func decides(want bool) demand {
	return each(func(a answer) error {
		body, err := a.object()
		if err != nil {
			return err
		}
		return isDecision(body, want)
	})
}

// single demands a decision, and no batch around or beside it.
func single(want bool) demand {
	return both(decides(want), each(func(a answer) error {
		if body, err := a.object(); err != nil || body["evaluations"] != nil {
			return errors.New("there are evaluations where none were asked for")
		}
		return nil
	}))
}

// batch demands these decisions, in this order, and none beside them.
func batch(want ...bool) demand {
	return each(func(a answer) error {
		items, err := a.batch()
		if err != nil {
			return err
		}
		if len(items) != len(want) {
			return fmt.Errorf("there are %d decisions, want %d", len(items), len(want))
		}
		for i, item := range items {
			if err := isDecision(item, want[i]); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		return nil
	})
}

// batchOf demands that many decisions, whatever they are.
func batchOf(n int) demand {
	return each(func(a answer) error {
		items, err := a.batch()
		if err != nil {
			return err
		}
		if len(items) != n {
			return fmt.Errorf("there are %d decisions, want %d", len(items), n)
		}
		for i, item := range items {
			if _, err := decided(item); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		return nil
	})
}

// An object is a JSON object by its members.
type object map[string]jsontext.Value

// object returns the body of a success: status 200, application/json, one JSON
// object that cannot be read in two ways.
func (a answer) object() (object, error) {
	if a.status != http.StatusOK {
		return nil, fmt.Errorf("status is %d, want 200", a.status)
	}
	if err := a.isJSON(); err != nil {
		return nil, err
	}
	var body object
	if err := json.Unmarshal(a.body, &body); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if body == nil {
		return nil, errors.New("body is null")
	}
	return body, nil
}

func (a answer) isJSON() error {
	sent := a.header.Get("Content-Type")
	if _, _, err := mime.ParseMediaType(sent); err != nil {
		return fmt.Errorf("Content-Type is %q: %w", sent, err)
	}
	if kind, _, _ := strings.Cut(sent, ";"); strings.TrimSpace(kind) != "application/json" {
		return fmt.Errorf("Content-Type is %q, want application/json", sent)
	}
	return nil
}

// batch returns the items of a batch that has no decision beside them.
func (a answer) batch() ([]object, error) {
	body, err := a.object()
	if err != nil {
		return nil, err
	}
	if body["decision"] != nil {
		return nil, errors.New("there is a decision beside the evaluations")
	}
	if body["evaluations"].Kind() != '[' {
		return nil, errors.New("evaluations is not an array")
	}
	var items []object
	if err := json.Unmarshal(body["evaluations"], &items); err != nil {
		return nil, fmt.Errorf("evaluations: %w", err)
	}
	return items, nil
}

func isDecision(o object, want bool) error {
	got, err := decided(o)
	if err == nil && got != want {
		err = fmt.Errorf("decision is %t, want %t", got, want)
	}
	return err
}

// decided returns what a Decision says: decision must be a boolean and
// context, if there is one, an object.
func decided(o object) (bool, error) {
	if context, ok := o["context"]; ok && context.Kind() != '{' {
		return false, fmt.Errorf("context is %s, not an object", context)
	}
	switch o["decision"].Kind() {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return false, fmt.Errorf("decision is %q, not a boolean", o["decision"])
}
