package main

import (
	"fmt"
	"io"
	"log/slog"
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

// plainAttr has the program's own log show texts and errors as [plain.Lines]
// does.
func plainAttr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(plain.Lines(v))
	case error:
		a.Value = slog.StringValue(plain.Lines(v.Error()))
	case []string:
		shown := make([]string, len(v))
		for i, text := range v {
			shown[i] = plain.Lines(text)
		}
		a.Value = slog.AnyValue(shown)
	}
	return a
}
