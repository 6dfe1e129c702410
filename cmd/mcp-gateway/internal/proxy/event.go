package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// An event is one of a stream of server-sent events (WHATWG HTML, "Server-sent
// events").
type event struct {
	id      string
	hasID   bool
	kind    string // "" is a message
	retry   string // milliseconds, or ""
	data    []byte // nil where there is none
	comment bool   // a sign of life and nothing else
}

var errEventSize = errors.New("an event is larger than allowed")

// An eventReader reads a stream of events.
type eventReader struct {
	lines *bufio.Scanner
	limit int // bytes of one event
}

func newEventReader(r io.Reader, limit int) *eventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, limit+64)
	lines.Split(func(text []byte, atEOF bool) (int, []byte, error) {
		advance, line, err := splitLine(text, atEOF)
		if advance == 0 && line == nil && len(text) > limit {
			return len(text), text, nil // too long: its beginning tells what it is
		}
		return advance, line, err
	})
	return &eventReader{lines, limit}
}

// splitLine is bufio.ScanLines for streams whose lines may end with a carriage
// return alone. A last line without an end is no line.
func splitLine(text []byte, atEOF bool) (advance int, line []byte, err error) {
	i := bytes.IndexAny(text, "\r\n")
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

// next returns the next event, or io.EOF. What is not ended by an empty line is
// no event. With errEventSize it returns the beginning of the event.
func (r *eventReader) next() (*event, error) {
	e, begun, size := new(event), false, 0
	for r.lines.Scan() {
		line := r.lines.Text()
		if size += len(line); size > r.limit {
			name, value, _ := strings.Cut(line, ":")
			e.set(name, strings.TrimPrefix(value, " "))
			return e, errEventSize
		}
		if line == "" {
			if e.kind != "" || e.hasID || e.retry != "" || e.data != nil {
				return e, nil
			}
			begun = false
			continue
		}
		if line[0] == ':' {
			if !begun {
				return &event{comment: true}, nil
			}
			continue
		}
		begun = true
		name, value, _ := strings.Cut(line, ":")
		e.set(name, strings.TrimPrefix(value, " "))
	}
	if err := r.lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, errEventSize
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil, io.EOF
}

// hasNoMessage reports whether the data of an event are no message. Servers with
// an event store replay the empty event at the beginning of a stream as {}, and
// some send events of other kinds as a sign of life.
func (e *event) hasNoMessage() bool {
	return string(bytes.TrimSpace(e.data)) == "{}" || e.kind == "ping"
}

func (e *event) set(name, value string) {
	switch name {
	case "id":
		if !strings.ContainsRune(value, 0) {
			e.id, e.hasID = value, true
		}
	case "event":
		e.kind = value
	case "retry":
		if value != "" && strings.Trim(value, "0123456789") == "" {
			e.retry = value
		}
	case "data":
		if e.data != nil {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
		if e.data == nil {
			e.data = []byte{}
		}
	}
}

// encode writes the event. Its data is on one line, as that of a message is.
func (e *event) encode() []byte {
	if e.comment {
		return []byte(":\n\n")
	}
	var out bytes.Buffer
	if e.kind != "" {
		out.WriteString("event: " + e.kind + "\n")
	}
	if e.hasID {
		out.WriteString("id: " + e.id + "\n")
	}
	if e.retry != "" {
		out.WriteString("retry: " + e.retry + "\n")
	}
	if e.data != nil {
		out.WriteString("data: ")
		out.Write(e.data)
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.Bytes()
}
