package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/policy-service/policy-service/obligations/plain"
)

// printLines writes lines for people. What callers and authors wrote in them
// cannot hide, reorder anything or do anything to a terminal.
func printLines(w io.Writer, write func(io.Writer) error) error {
	var text strings.Builder
	err := write(&text)
	if _, printed := io.WriteString(w, plain.Lines(text.String())); err == nil {
		err = printed
	}
	return err
}

// printLine is printLines of one line that is composed already.
func printLine(w io.Writer, parts ...any) {
	_, _ = io.WriteString(w, plain.Lines(fmt.Sprintln(parts...))) // nobody is left to be told
}
