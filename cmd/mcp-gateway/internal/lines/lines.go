// Package lines reads and writes the messages of MCP on standard input and output:
// each is a line.
//
// The law it keeps: a line has a bound. One that is too long is read to its end, so
// that the next one is found, and what it is can still be told.
package lines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/wire"
)

// A Writer writes messages, each on a line. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	W  io.Writer
}

// Write writes a message.
func (l *Writer) Write(m *wire.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.W.Write(append(m.Encode(), '\n'))
	return err
}

// ErrSize means that a message is larger than the limit.
var ErrSize = errors.New("the message is too large")

// A sizeError is the ErrSize of a line, and what was seen of its message.
type sizeError struct {
	limit int64
	seen  wire.Glimpse
}

func (e *sizeError) Error() string {
	return fmt.Sprintf("%v: it has more than %d bytes", ErrSize, e.limit)
}

func (e *sizeError) Is(target error) bool { return target == ErrSize }

// Glimpse returns what can be seen of a message that was not read because of err.
func Glimpse(line []byte, err error) wire.Glimpse {
	if tooLong := new(sizeError); errors.As(err, &tooLong) {
		return tooLong.seen
	}
	return wire.Look(line)
}

// Read reads up to the end of a line. One that is too long is read to its end
// and is a sizeError.
func Read(in *bufio.Reader, limit int64) ([]byte, error) {
	var line []byte
	var scanner wire.Scanner
	tooLong := false
	for {
		part, err := in.ReadSlice('\n')
		switch {
		case tooLong:
			scanner.Scan(part)
		case int64(len(line)+len(part)) > limit:
			tooLong = true
			scanner.Scan(line)
			scanner.Scan(part)
		default:
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 && !tooLong || !errors.Is(err, io.EOF)):
			return nil, err
		case tooLong:
			return nil, &sizeError{limit, scanner.Glimpse()}
		}
		for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
			line = line[:len(line)-1]
		}
		return line, nil
	}
}
