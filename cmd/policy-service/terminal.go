package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/policy-service/policy-service/obligations/plain"
)

// printLines writes lines for people. Text of callers and authors in them cannot hide
// or reorder anything, and cannot control the terminal.
func printLines(w io.Writer, write func(io.Writer) error) error {
	var text strings.Builder
	err := write(&text)
	if _, printed := io.WriteString(w, plain.Lines(text.String())); err == nil {
		err = printed
	}
	return err
}

// printLine is printLines for one line that is complete.
func printLine(w io.Writer, parts ...any) {
	_, _ = io.WriteString(w, plain.Lines(fmt.Sprintln(parts...))) // nobody is left to be told
}
