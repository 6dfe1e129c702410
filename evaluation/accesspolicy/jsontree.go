package accesspolicy

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/policy-service/policy-service/evaluation/faults"
)

const (
	maxBytes = 1 << 20 // of a document
	maxDepth = 8       // of nested objects and arrays
)

// A node is a JSON value with its position.
type node struct {
	kind     jsontext.Kind
	text     string // of a string
	at       int64  // byte offset of the value
	members  []member
	elements []*node
}

type member struct {
	name  string
	at    int64 // byte offset of the name
	value *node
}

var (
	errEmpty    = errors.New("is empty")
	errTooLarge = fmt.Errorf("is larger than %d bytes", maxBytes)
	errTooDeep  = fmt.Errorf("is nested deeper than %d", maxDepth)
	errTrailing = errors.New("there is something behind the document")
)

// A treeReader builds the tree of a document. Its depth is limited, so its recursion is.
type treeReader struct {
	dec *jsontext.Decoder
	src []byte
}

// readTree reads a whole document. On an error it returns the byte offset.
func readTree(src []byte) (root *node, at int64, err error) {
	switch {
	case len(src) > maxBytes:
		return nil, 0, errTooLarge
	case len(bytes.TrimSpace(src)) == 0:
		return nil, 0, errEmpty
	}
	r := treeReader{jsontext.NewDecoder(bytes.NewBuffer(src)), src} // a bytes.Buffer is decoded in place, and errors can name members
	root, err = r.value()
	switch at = r.next(); {
	case errors.Is(err, errTooDeep):
		return nil, at - 1, err
	case err != nil:
		return nil, faults.JSONOffset(err), err
	}
	if _, err := r.dec.ReadToken(); errors.Is(err, io.EOF) {
		return root, 0, nil
	}
	return nil, at, errTrailing
}

// next returns the offset of the next token.
func (r *treeReader) next() int64 {
	at := r.dec.InputOffset()
	for at < int64(len(r.src)) && bytes.IndexByte([]byte(" \t\r\n,:"), r.src[at]) >= 0 {
		at++
	}
	return at
}

// value reads the next value.
func (r *treeReader) value() (*node, error) {
	n := &node{at: r.next()}
	token, err := r.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	if n.kind = token.Kind(); r.dec.StackDepth() > maxDepth {
		return nil, errTooDeep
	}
	switch n.kind {
	case '"':
		n.text = token.String()
	case '{':
		err = r.members(n)
	case '[':
		err = r.elements(n)
	}
	return n, err
}

func (r *treeReader) members(n *node) error {
	for r.dec.PeekKind() == '"' {
		at := r.next()
		name, err := r.dec.ReadToken()
		if err != nil {
			return err
		}
		m := member{name: name.String(), at: at}
		if m.value, err = r.value(); err != nil {
			return err
		}
		n.members = append(n.members, m)
	}
	_, err := r.dec.ReadToken()
	return err
}

func (r *treeReader) elements(n *node) error {
	for r.dec.PeekKind() != ']' {
		element, err := r.value()
		if err != nil {
			return err
		}
		n.elements = append(n.elements, element)
	}
	_, err := r.dec.ReadToken()
	return err
}

// named returns the member of an object, or nil.
func (n *node) named(name string) *member {
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}
