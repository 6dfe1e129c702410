package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/durable"
)

// newStreamSink returns the sink that the command line names.
func newStreamSink(ctx context.Context, c *logStreamCmd) (streamSink, error) {
	path, isFile := strings.CutPrefix(c.To, "file:")
	switch {
	case isFile && path != "":
		return fileSink{path, c.Format}, nil
	case strings.HasPrefix(c.To, "https://") || strings.HasPrefix(c.To, "http://"):
		return newPostSink(c)
	case c.To == "otlp":
		return newOTLPSink(ctx)
	}
	return nil, fmt.Errorf("%q is no sink: want file:PATH, a URL or otlp", c.To)
}

// encodeLines returns lines in a format.
func encodeLines(lines [][]byte, format string) (*bytes.Buffer, error) {
	out := new(bytes.Buffer)
	encoder, err := decisionlog.NewEncoder(out, format)
	for _, line := range lines {
		if err == nil {
			err = encoder.Encode(line)
		}
	}
	if err != nil {
		return nil, err
	}
	return out, encoder.Flush()
}

// A fileSink appends to a file. Other programs may rename the file meanwhile.
type fileSink struct{ path, format string }

func (s fileSink) deliver(_ context.Context, lines [][]byte) error {
	text, err := encodeLines(lines, s.format)
	if err != nil {
		return err
	}
	_, missing := os.Stat(s.path)
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err = dropHalfLine(file); err == nil {
		_, err = file.Write(text.Bytes())
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if errors.Is(missing, fs.ErrNotExist) {
		return durable.SyncDir(filepath.Dir(s.path))
	}
	return nil
}

// dropHalfLine removes the text after the last line feed of a file: the line that a
// killed writer had not finished. It is written again.
func dropHalfLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	chunk := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		begin := max(0, end-int64(len(chunk)))
		tail := chunk[:end-begin]
		if _, err := file.ReadAt(tail, begin); err != nil {
			return err
		}
		if at := bytes.LastIndexByte(tail, '\n'); at >= 0 {
			end = begin + int64(at) + 1
			if end == info.Size() {
				return nil
			}
			return file.Truncate(end)
		}
		end = begin
	}
	return file.Truncate(0)
}

// A postSink posts to a URL. A status of 2xx means that the receiver has stored the
// lines.
type postSink struct {
	url, format string
	header      http.Header
	client      *http.Client
}

const postTime = 30 * time.Second

func newPostSink(c *logStreamCmd) (*postSink, error) {
	s := &postSink{url: c.To, format: c.Format, header: make(http.Header), client: &http.Client{Timeout: postTime}}
	s.header.Set("Content-Type", "application/jsonl")
	for _, line := range c.Header {
		name, value, found := strings.Cut(line, ":")
		if !found {
			return nil, fmt.Errorf("--header wants a name, a colon and a value")
		}
		s.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return s, nil
}

func (s *postSink) deliver(ctx context.Context, lines [][]byte) error {
	body, err := encodeLines(lines, s.format)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, body)
	if err != nil {
		return err
	}
	request.Header = s.header
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s: %s", s.url, response.Status)
	}
	return nil
}
