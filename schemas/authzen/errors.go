package authzen

import "fmt"

// A ValidationError says what in a request cannot be accepted and where.
type ValidationError struct {
	Path   string // JSON Pointer (RFC 6901) of the offending value; "" is the whole body
	Reason string // a phrase that follows the path: "is required"
}

func (e *ValidationError) Error() string {
	if e.Path == "" {
		return "the request " + e.Reason
	}
	return e.Path + " " + e.Reason
}

// Invalid returns a ValidationError about the value at path.
func Invalid(path, format string, args ...any) *ValidationError {
	return &ValidationError{Path: path, Reason: fmt.Sprintf(format, args...)}
}

// Below returns the same complaint about a request that stands at prefix
// inside a larger one.
func (e *ValidationError) Below(prefix string) *ValidationError {
	return &ValidationError{Path: prefix + e.Path, Reason: e.Reason}
}
