package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// A Glimpse is what can be told of a message that is too large or nests too
// deep to be read: it may have been cut off.
type Glimpse struct {
	ID            jsontext.Value // nil if it was not seen
	Result, Error bool           // it is a response with one of these
}

// Look returns what the names of a message tell, as far as its text goes.
func Look(text []byte) (seen Glimpse) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '{' {
		return Glimpse{}
	}
	for {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != '"' {
			return seen
		}
		switch name.String() {
		case "method":
			return Glimpse{}
		case "result":
			seen.Result = true
		case "error":
			seen.Error = true
		case "id":
			id, err := dec.ReadValue()
			if err != nil {
				return seen
			}
			seen.ID = id.Clone()
			continue
		}
		if dec.SkipValue() != nil {
			return seen
		}
	}
}
