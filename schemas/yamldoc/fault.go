package yamldoc

import (
	"errors"
	"fmt"
	"strings"
)

// A Fault is one thing wrong in a file.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitzero"`   // from 1; 0 is the whole file
	Column  int    `json:"column,omitzero"` // from 1
	Message string `json:"message"`
	Hint    string `json:"hint,omitzero"` // what to do about it
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

// Errors joins faults to one error, which is nil without any.
func Errors(faults []Fault) error {
	all := make([]error, len(faults))
	for i, fault := range faults {
		all[i] = fault
	}
	return errors.Join(all...)
}
