package endpoint

import (
	"bytes"
	"io"
)

// Rewrite reads a stream of events and writes what was read, as the proxy does.
func Rewrite(r io.Reader, limit int) ([]byte, error) {
	var out bytes.Buffer
	for stream := NewEventReader(r, limit); ; {
		e, err := stream.Next()
		if err != nil {
			return out.Bytes(), err
		}
		if bytes.ContainsAny(e.Data, "\n") {
			continue // of several lines is no message, which is on one
		}
		out.Write(e.Encode())
	}
}
