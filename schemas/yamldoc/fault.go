package yamldoc

import (
	"errors"
	"fmt"
	"strings"
)

// A Fault is one fault in a file.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitzero"`   // from 1; 0 means the whole file
	Column  int    `json:"column,omitzero"` // from 1
	Message string `json:"message"`
	Hint    string `json:"hint,omitzero"` // how to correct it
}

func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	b.WriteString(": " + f.Message)
	if f.Hint != "" {
		b.WriteString(" (" + f.Hint + ")")
	}
	return b.String()
}

// Errors joins faults into one error, or nil.
func Errors(faults []Fault) error {
	all := make([]error, len(faults))
	for i, fault := range faults {
		all[i] = fault
	}
	return errors.Join(all...)
}
