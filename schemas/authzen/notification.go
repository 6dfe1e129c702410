package authzen

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// This file is the obligation "notification" of the AuthZEN Obligations Profile.
// In the draft of July 2026 to is a string; since then it is a list.

// A NotificationObligation are the properties of a notification.
type NotificationObligation struct {
	To              Recipients     `json:"to"`
	Body            string         `json:"body"`
	Topic           string         `json:"topic,omitzero"`
	DecisionSubject jsontext.Value `json:"decision_subject,omitzero"` // the entity that the decision is about
	More            jsontext.Value `json:",embed"`                    // other members
}

// Recipients are who is notified: at least one. They are read as a list or as
// the one.
type Recipients []string

// UnmarshalJSONFrom reads a list, or a string.
func (r *Recipients) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '"' {
		*r = Recipients{""}
		return json.UnmarshalDecode(dec, &(*r)[0])
	}
	if err := json.UnmarshalDecode(dec, (*[]string)(r)); err != nil {
		return err
	}
	if len(*r) == 0 {
		return errors.New("nobody is to be notified")
	}
	return nil
}
