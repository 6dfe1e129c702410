package catalog

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/boltfile"
	"github.com/policy-service/policy-service/schemas/jsonobject"
)

var (
	// ErrUnknown means that the server has not listed the tool, prompt or resource.
	ErrUnknown = errors.New("the tool is not known")
	// ErrQuarantined means that the definition of the tool has changed.
	ErrQuarantined = errors.New("the definition has changed since it was accepted")
	// ErrProposed means that the operator has not accepted the tool yet.
	ErrProposed = errors.New("the definition has not been accepted yet")
	// ErrUnreadable means that a list or a definition is not valid.
	ErrUnreadable = errors.New("the list cannot be read")
)

// Limits of the lists of a server.
const (
	maxDefinition = 256 << 10 // bytes
	maxTools      = 2000      // of a server, seen within keptPlace; also prompts, and templates
	maxResources  = 20_000
	maxPages      = 200
)

// A tool that a server has not listed for keptPlace stays pinned, but does not count
// towards maxTools. SeenAt is written again after seenEvery.
const (
	keptPlace = 30 * 24 * time.Hour
	seenEvery = 24 * time.Hour
)

// A Config configures a [Catalog].
type Config struct {
	Path string // of the file
	// Accepted pins only definitions that the operator accepts. Otherwise the first
	// definition of a tool is pinned.
	Accepted bool
	// Operator is the file of accepted definitions, "" for none: a line for each
	// tool, with the digest of its definition, its server and its name. A changed
	// file is read again. See also [Catalog.Accept].
	Operator string
	// Superseded, if not nil, is called after the catalog has stored a change of a
	// definition, or a definition that waits to be accepted. Approvals of the former
	// definition are for another tool.
	Superseded func(Change)
	Now        func() time.Time // nil is time.Now
}

// A Change is a tool whose pinned definition is not the listed one.
type Change struct {
	Server, Tool string
	Was          string // digest of the pinned definition, or ""
	Is           string // digest of the listed definition
}

// A Pin is the record of a tool.
type Pin struct {
	Server     string         `json:"server"`
	Tool       string         `json:"tool"`
	Digest     string         `json:"digest,omitzero"` // of Definition, "sha256:…"
	Definition jsontext.Value `json:"definition,omitzero"`
	PinnedAt   time.Time      `json:"pinned_at,omitzero"`
	// Listed is the definition that the server lists instead of Definition, since
	// ListedAt. The gateway does not call a tool with a Listed definition.
	Listed       jsontext.Value `json:"listed,omitzero"`
	ListedDigest string         `json:"listed_digest,omitzero"`
	ListedAt     time.Time      `json:"listed_at,omitzero"`
	SeenAt       time.Time      `json:"seen_at,omitzero"` // when the server listed the tool, to the day
}

// lastSeen is when the server last listed the tool, to the day.
func (p *Pin) lastSeen() time.Time {
	return slices.MaxFunc([]time.Time{p.SeenAt, p.PinnedAt, p.ListedAt}, time.Time.Compare)
}

// isWithheld reports whether an error of a pin means that the operator has to accept
// the definition first.
func isWithheld(err error) bool { return errors.Is(err, ErrQuarantined) || errors.Is(err, ErrProposed) }

// Err returns why the tool must not be called, or nil.
func (p *Pin) Err() error {
	switch {
	case p.ListedDigest == "":
		return nil
	case p.Digest == "":
		return ErrProposed
	}
	return ErrQuarantined
}

// A Catalog may be open in several processes. It is safe for concurrent use.
type Catalog struct {
	Config
	db       *boltfile.File
	accepted accepted

	cache pinCache

	mu      sync.Mutex
	schemas map[string]func() (*schema, error) // by the digest of the definition and the member
}

var bucketPins = []byte("pins")

// Open opens the file of a catalog, or creates it.
func Open(c Config) (*Catalog, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	db, err := boltfile.Open(c.Path, bucketPins)
	if err != nil {
		return nil, fmt.Errorf("open catalog: %w", err)
	}
	return &Catalog{Config: c, db: db, accepted: accepted{file: c.Operator}}, nil
}

// A Tool is a tool that may be called.
type Tool struct {
	Name       string
	Digest     string         // of the definition
	Definition jsontext.Value // canonical
	schema     *schema        // of the input
	catalog    *Catalog
}

// Tool returns the accepted definition of a tool. The error is [ErrUnknown],
// [ErrQuarantined], [ErrProposed], or a fault of the input schema.
func (c *Catalog) Tool(server, name string) (*Tool, error) {
	pin, err := c.standing(server, name)
	if err != nil {
		return nil, err
	}
	s, err := c.schema(pin.Digest, pin.Definition, inputSchema)
	if err != nil {
		return nil, fmt.Errorf("input schema of %s: %w", name, err)
	}
	return &Tool{name, pin.Digest, pin.Definition, s, c}, nil
}

// standing returns the pin of a tool that may be called. It ends a quarantine if the
// operator has accepted the listed definition meanwhile.
func (c *Catalog) standing(server, name string) (*Pin, error) {
	pin, err := c.pin(server, name)
	if err != nil || pin.Err() == nil {
		return pin, err
	}
	digest, err := c.accepted.digest(server, name)
	if err != nil || digest != pin.ListedDigest {
		return nil, errors.Join(pin.Err(), err)
	}
	if err := c.Accept(server, name, digest); err != nil {
		return nil, err
	}
	return c.pin(server, name)
}

func (c *Catalog) pin(server, name string) (*Pin, error) {
	pin, err := c.cache.pin(c.db, server, name)
	if err == nil && pin == nil {
		return nil, ErrUnknown
	}
	return pin, err
}

func key(server, name string) []byte { return []byte(server + "\x00" + name) }

// get returns a pin, or nil.
func get(tx *bolt.Tx, server, name string) (*Pin, error) {
	value := tx.Bucket(bucketPins).Get(key(server, name))
	if value == nil {
		return nil, nil
	}
	pin := new(Pin)
	if err := json.Unmarshal(value, pin); err != nil {
		return nil, fmt.Errorf("read pin of %s: %w", name, err)
	}
	return pin, nil
}

func put(tx *bolt.Tx, pin *Pin) error {
	value, err := json.Marshal(pin)
	if err != nil {
		return fmt.Errorf("write pin of %s: %w", pin.Tool, err)
	}
	return tx.Bucket(bucketPins).Put(key(pin.Server, pin.Tool), value)
}

// Pins returns the pins of a list ([Lists]), sorted by name.
func (c *Catalog) Pins(server string) (pins []Pin, err error) {
	err = c.db.View(func(tx *bolt.Tx) error {
		return each(tx, server, func(value []byte) error {
			var pin Pin
			if err := json.Unmarshal(value, &pin); err != nil {
				return fmt.Errorf("read pin: %w", err)
			}
			pins = append(pins, pin)
			return nil
		})
	})
	return pins, err
}

// AllPins returns the pins of all lists of a server.
func (c *Catalog) AllPins(server string) (pins []Pin, err error) {
	for _, list := range Lists(server) {
		of, err := c.Pins(list)
		if err != nil {
			return nil, err
		}
		pins = append(pins, of...)
	}
	return pins, nil
}

// Quarantined returns the number of definitions of a server that have to be accepted
// before the gateway uses them.
func (c *Catalog) Quarantined(server string) (n int, err error) {
	pins, err := c.AllPins(server)
	for _, pin := range pins {
		if pin.Err() != nil {
			n++
		}
	}
	return n, err
}

// each calls do with each pin of a server, sorted by name.
func each(tx *bolt.Tx, server string, do func(value []byte) error) error {
	cursor, prefix := tx.Bucket(bucketPins).Cursor(), key(server, "")
	for k, value := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = cursor.Next() {
		if err := do(value); err != nil {
			return err
		}
	}
	return nil
}

// Accept pins the definition with the digest, which is the listed or the pinned one,
// and ends the quarantine of the tool. It is for an operator who has seen the
// definition.
func (c *Catalog) Accept(server, name, digest string) error {
	return c.db.Update(func(tx *bolt.Tx) error {
		pin, err := get(tx, server, name)
		switch {
		case err != nil:
			return err
		case pin == nil:
			return ErrUnknown
		case digest == "":
			return fmt.Errorf("no definition of %s is named", name)
		case digest == pin.ListedDigest:
			pin.pin(definition{name, digest, pin.Listed}, c.Now())
		case digest == pin.Digest:
			pin.pin(definition{name, digest, pin.Definition}, c.Now())
		default:
			return fmt.Errorf("%s has no definition %s: it has %s", name, digest, cmp.Or(pin.ListedDigest, pin.Digest))
		}
		return put(tx, pin)
	})
}

// Forget removes the pins of tools of a server: all of them, or none if one is
// unknown. The next listed definition is then the first.
func (c *Catalog) Forget(server string, names ...string) error {
	return c.db.Update(func(tx *bolt.Tx) error {
		for _, name := range names {
			if tx.Bucket(bucketPins).Get(key(server, name)) == nil {
				return fmt.Errorf("%s: %q: %w", server, name, ErrUnknown)
			}
			if err := tx.Bucket(bucketPins).Delete(key(server, name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// A definition is one that a server lists.
type definition struct {
	name, digest string
	text         jsontext.Value // canonical
}

// canonical reads a definition.
func (k itemKind) canonical(text jsontext.Value) (definition, error) {
	if len(text) > maxDefinition {
		return definition{}, fmt.Errorf("%w: a definition has more than %d bytes", ErrUnreadable, maxDefinition)
	}
	name, err := nameOf(text, k.name)
	if err != nil {
		return definition{}, err
	}
	pinned, err := k.pinned(text)
	if err != nil {
		return definition{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	out := pinned.Clone()
	if err := out.Format(jsontext.ReorderRawObjects(true)); err != nil {
		return definition{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	digest := sha256.Sum256(out)
	return definition{name, "sha256:" + hex.EncodeToString(digest[:]), out}, nil
}

// Observe stores the tools that a server lists: all of them or none.
func (c *Catalog) Observe(server string, tools []jsontext.Value) error {
	return c.observe(server, kinds[0], tools)
}

// observe stores the items of a kind that a server lists.
func (c *Catalog) observe(server string, k itemKind, items []jsontext.Value) error {
	server += k.list
	listed := make([]definition, 0, len(items))
	seen := make(map[string]bool)
	for _, text := range items {
		d, err := k.canonical(text)
		if err != nil {
			return err
		}
		if seen[d.name] {
			return fmt.Errorf("%w: two items have the %s %q", ErrUnreadable, k.name, d.name)
		}
		seen[d.name] = true
		listed = append(listed, d)
	}
	news, err := c.news(server, listed)
	if err != nil || len(news) == 0 {
		return err
	}
	changes, err := c.take(server, k.max, news)
	if err == nil && c.Superseded != nil {
		for _, change := range changes {
			c.Superseded(change)
		}
	}
	return err
}

// news returns the definitions that differ from the pins.
func (c *Catalog) news(server string, listed []definition) (news []definition, err error) {
	for _, d := range listed {
		pin, err := c.cache.pin(c.db, server, d.name)
		if err != nil {
			return nil, err
		}
		if pin == nil || !pin.has(d) || pin.Err() != nil && c.accepts(pin, d) || c.Now().Sub(pin.lastSeen()) > seenEvery {
			news = append(news, d)
		}
	}
	return news, nil
}

// accepts reports whether the operator's file has a definition. An unreadable file
// is an error of the next call of the tool.
func (c *Catalog) accepts(pin *Pin, d definition) bool {
	digest, err := c.accepted.digest(pin.Server, d.name)
	return err == nil && digest == d.digest
}

// has reports whether the pin has the definition already. In quarantine that includes
// the pinned definition, because only the operator ends a quarantine.
func (p *Pin) has(d definition) bool {
	return d.digest == p.Digest || d.digest == p.ListedDigest || sameInBothEras(p.Definition, d.text)
}

// taskForbidden is the default of the member execution. Servers send it in the
// versions with sessions, and not in later versions.
const taskForbidden = `{"taskSupport":"forbidden"}`

// sameInBothEras reports whether two definitions are equal except for that default.
func sameInBothEras(pinned, listed jsontext.Value) bool {
	a, b := withoutDefault(pinned), withoutDefault(listed)
	return a != nil && bytes.Equal(a, b)
}

// withoutDefault returns a canonical definition without the default of execution, or
// nil if it is not an object.
func withoutDefault(definition jsontext.Value) jsontext.Value {
	members, err := jsonobject.Parse(definition)
	if definition == nil || err != nil {
		return nil
	}
	if string(members["execution"]) == taskForbidden {
		delete(members, "execution")
	}
	text, err := members.Encode()
	if err != nil {
		return nil
	}
	return text
}

func (c *Catalog) take(server string, most int, news []definition) (changes []Change, err error) {
	err = c.db.Update(func(tx *bolt.Tx) error {
		changes = nil
		known := 0
		err := each(tx, server, func(value []byte) error {
			var pin Pin
			if err := json.Unmarshal(value, &pin); err != nil {
				return fmt.Errorf("read pin: %w", err)
			}
			if c.Now().Sub(pin.lastSeen()) <= keptPlace {
				known++
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, d := range news {
			pin, err := get(tx, server, d.name)
			if err != nil {
				return err
			}
			if pin == nil {
				if known++; known > most {
					return fmt.Errorf("%w: %s lists more than the limit of %d items", ErrUnreadable, server, most)
				}
				pin = &Pin{Server: server, Tool: d.name}
			}
			pin.SeenAt = c.Now()
			if change, changed := c.update(pin, d); changed {
				changes = append(changes, change)
			}
			if err := put(tx, pin); err != nil {
				return err
			}
		}
		return nil
	})
	return changes, err
}

// update sets a new definition as the pinned one, or as the listed one.
func (c *Catalog) update(pin *Pin, d definition) (Change, bool) {
	change := Change{pin.Server, pin.Tool, pin.Digest, d.digest}
	first := pin.Digest == "" && pin.ListedDigest == "" && !c.Accepted
	switch {
	case first || c.accepts(pin, d):
		pin.pin(d, c.Now())
		return change, change.Was != "" && change.Was != change.Is
	case pin.has(d):
		return Change{}, false
	}
	pin.Listed, pin.ListedDigest, pin.ListedAt = d.text, d.digest, c.Now()
	return change, true
}

// pin sets the pinned definition.
func (p *Pin) pin(d definition, now time.Time) {
	if p.Digest != d.digest {
		p.Digest, p.Definition, p.PinnedAt = d.digest, d.text, now
	}
	p.Listed, p.ListedDigest, p.ListedAt = nil, "", time.Time{}
}

// Refresh reads all the tools of a server, page by page, and stores them. A list that
// cannot be read to its end changes nothing.
func (c *Catalog) Refresh(ctx context.Context, server string, page func(ctx context.Context, cursor string) (jsontext.Value, error)) error {
	var tools []jsontext.Value
	cursors := make(map[string]bool)
	for cursor := ""; ; {
		result, err := page(ctx, cursor)
		if err != nil {
			return fmt.Errorf("list the tools of %s: %w", server, err)
		}
		l, err := readList("tools", result)
		if err != nil {
			return fmt.Errorf("list the tools of %s: %w", server, err)
		}
		tools = append(tools, l.items...)
		if cursor = l.next; cursor == "" {
			return c.Observe(server, tools)
		}
		if cursors[cursor] || len(cursors) >= maxPages || len(tools) > maxTools {
			return fmt.Errorf("list the tools of %s: %w: it does not end", server, ErrUnreadable)
		}
		cursors[cursor] = true
	}
}
