package endpoint

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// An Event is one of a stream of server-sent events (WHATWG HTML, "Server-sent
// events").
type Event struct {
	ID      string
	HasID   bool
	Kind    string // "" is a message
	Retry   string // milliseconds, or ""
	Data    []byte // nil where there is none
	Comment bool   // a sign of life and nothing else
}

var (
	// ErrEventSize means that an event is larger than the limit.
	ErrEventSize = errors.New("an event is larger than allowed")
	// ErrBroken means that a stream broke off.
	ErrBroken = errors.New("the stream broke off")
)

// An EventReader reads a stream of events.
type EventReader struct {
	lines *bufio.Scanner
	limit int // bytes of one event
}

// NewEventReader returns the reader of a stream whose events have at most limit
// bytes.
func NewEventReader(r io.Reader, limit int) *EventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, limit+64)
	searched := 0 // bytes of the text before which no line ends
	lines.Split(func(text []byte, atEOF bool) (int, []byte, error) {
		advance, line, err := splitLine(text, searched, atEOF)
		if advance == 0 && line == nil && len(text) > limit {
			advance, line = len(text), text // too long: its beginning tells what it is
		}
		if searched = 0; advance == 0 {
			searched = max(len(text)-1, 0) // the last byte may be the first of two that end a line
		}
		return advance, line, err
	})
	return &EventReader{lines, limit}
}

// splitLine is bufio.ScanLines for streams whose lines may end with a carriage
// return alone. A last line without an end is no line. No line ends in the bytes that
// were searched before: a long line comes in many parts.
func splitLine(text []byte, searched int, atEOF bool) (advance int, line []byte, err error) {
	i := bytes.IndexAny(text[searched:], "\r\n")
	if i >= 0 {
		i += searched
	}
	switch {
	case i < 0 && atEOF:
		return len(text), nil, nil
	case i < 0, text[i] == '\r' && i+1 == len(text) && !atEOF:
		return 0, nil, nil
	case text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n':
		return i + 2, text[:i], nil
	}
	return i + 1, text[:i], nil
}

// Next returns the next event, or io.EOF. What is not ended by an empty line is
// no event. With ErrEventSize it returns the beginning of the event.
func (r *EventReader) Next() (*Event, error) {
	e, begun, size := new(Event), false, 0
	for r.lines.Scan() {
		line := r.lines.Text()
		if size += len(line); size > r.limit {
			name, value, _ := strings.Cut(line, ":")
			e.set(name, strings.TrimPrefix(value, " "))
			return e, ErrEventSize
		}
		if line == "" {
			if e.Kind != "" || e.HasID || e.Retry != "" || e.Data != nil {
				return e, nil
			}
			begun = false
			continue
		}
		if line[0] == ':' {
			if !begun {
				return &Event{Comment: true}, nil
			}
			continue
		}
		begun = true
		name, value, _ := strings.Cut(line, ":")
		e.set(name, strings.TrimPrefix(value, " "))
	}
	if err := r.lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, ErrEventSize
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil, io.EOF
}

// HasNoMessage reports whether the data of an event are no message. Servers with
// an event store replay the empty event at the beginning of a stream as {}, and
// some send events of other kinds as a sign of life.
func (e *Event) HasNoMessage() bool {
	return string(bytes.TrimSpace(e.Data)) == "{}" || e.Kind == "ping"
}

func (e *Event) set(name, value string) {
	switch name {
	case "id":
		if !strings.ContainsRune(value, 0) {
			e.ID, e.HasID = value, true
		}
	case "event":
		e.Kind = value
	case "retry":
		if value != "" && strings.Trim(value, "0123456789") == "" {
			e.Retry = value
		}
	case "data":
		if e.Data != nil {
			e.Data = append(e.Data, '\n')
		}
		e.Data = append(e.Data, value...)
		if e.Data == nil {
			e.Data = []byte{}
		}
	}
}

// Encode writes the event. Its data is on one line, as that of a message is.
func (e *Event) Encode() []byte {
	if e.Comment {
		return []byte(":\n\n")
	}
	var out bytes.Buffer
	if e.Kind != "" {
		out.WriteString("event: " + e.Kind + "\n")
	}
	if e.HasID {
		out.WriteString("id: " + e.ID + "\n")
	}
	if e.Retry != "" {
		out.WriteString("retry: " + e.Retry + "\n")
	}
	if e.Data != nil {
		out.WriteString("data: ")
		out.Write(e.Data)
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.Bytes()
}
