package snapshot

import (
	"context"
	"errors"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"

	"github.com/policy-service/policy-service/evaluation/cedarsyntax"
	"github.com/policy-service/policy-service/evaluation/faults"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

type compiler struct {
	ctx      context.Context
	archive  Archive
	ways     []string            // in which people are notified; nil if unknown
	logged   bool                // the log holds decisions of this revision, so the tenancy checks are skipped
	configs  []*yamldoc.Document // config.yaml, the root's first
	settings map[string]Settings // by tenant, "" for the root
	entities []writtenEntity
	faults   faults.List
	partial  bool // something could not be read
	schema   *resolved.Schema

	notificationTo string // the setting of that name
}

// A writtenEntity is an entity as written in a file, with its position.
type writtenEntity struct {
	cedar.Entity
	place
}

func (c *compiler) fault(file string, line, column int, message, hint string) {
	c.faults = append(c.faults, faults.Fault{File: file, Line: line, Column: column, Message: message, Hint: hint})
}

// configFault reports a fault at its position in the first config.yaml that has the path. A value
// from an alias has no position.
func (c *compiler) configFault(message, hint string, path ...string) {
	for _, d := range c.configs {
		if d.Has(path...) {
			c.faults = append(c.faults, d.Fault(message, hint, path...))
			return
		}
	}
	c.fault(FileConfig, 0, 0, message, hint)
}

func (c *compiler) yamlFault(file string, err error) {
	var fault faults.Fault
	if !errors.As(err, &fault) {
		fault = faults.Fault{File: file, Message: err.Error()}
	}
	c.faults = append(c.faults, fault)
}

// parseFault reports a parser's error in a statement.
func (c *compiler) parseFault(file string, st cedarsyntax.Statement, err error) {
	said := cedarsyntax.ReadParseError(err.Error())
	if said.PastToken() {
		said.StepBack(st.Text)
	}
	line, column := st.Line, st.Column
	if said.Line > 0 {
		line, column = st.Position(said.Line, said.Column)
	}
	c.fault(file, line, column, "does not parse: "+said.Message(), "")
}

// ErrSlow means that a policy store takes longer to compile than Config.CompileDeadline.
var ErrSlow = errors.New("the policy store takes too long to compile")

// slow is the panic value of the compiler when its context has ended.
type slow struct{}

// inTime panics with slow if the context has ended.
func (c *compiler) inTime() {
	if c.ctx.Err() != nil {
		panic(slow{})
	}
}

// recoverSlow converts that panic to an error.
func recoverSlow(err *error) {
	switch p := recover().(type) {
	case nil:
	case slow:
		*err = ErrSlow
	default:
		panic(p)
	}
}
