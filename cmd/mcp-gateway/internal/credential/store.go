package credential

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/boltfile"
	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/seal"
)

// A Store keeps what people have granted, sealed, and the authorization requests that
// were answered. It is safe for concurrent use.
//
// Layout: the bucket grants has a sealed [grant] under the key of its server and
// person; the bucket answered has the end of each answered request under its id.
type Store struct {
	file *boltfile.File
	seal *seal.Key
}

var (
	bucketGrants   = []byte("grants")
	bucketAnswered = []byte("answered")
)

// OpenStore opens the store in a file, or makes it.
func OpenStore(path string, key *seal.Key) (*Store, error) {
	file, err := boltfile.Open(path, bucketGrants, bucketAnswered)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	return &Store{file, key}, nil
}

// A grant is what a person has let the gateway have at a server.
type grant struct {
	Issuer   string    `json:"issuer,omitzero"` // of the tokens
	Client   string    `json:"client"`          // that they were issued to
	Resource string    `json:"resource"`        // that they are for
	Access   string    `json:"access"`
	Until    time.Time `json:"until"` // Access is used
	Refresh  string    `json:"refresh,omitzero"`
	Scopes   []string  `json:"scopes,omitzero"` // of Access; nil if they are not known

	sealed string // as it is in the store
}

// errMoved means that a grant is another by now.
var errMoved = errors.New("the grant has changed")

// purpose binds a sealed grant to its key, so that it is no grant of anybody else.
func purpose(k key) string { return fmt.Sprintf("grant %x", k) }

// load returns a grant, or nil if there is none.
func (s *Store) load(k key) (*grant, error) {
	g := new(grant)
	err := s.file.View(func(tx *bbolt.Tx) error {
		g.sealed = string(tx.Bucket(bucketGrants).Get(k[:]))
		return nil
	})
	if err != nil || g.sealed == "" {
		return nil, err
	}
	return g, s.seal.Open(purpose(k), g.sealed, g)
}

// save replaces a grant; next is nil to remove it. The error is [errMoved] if was is
// not in the store any more; without was, it replaces whatever is there. The change is
// on disk when save returns nil.
func (s *Store) save(k key, was, next *grant) (err error) {
	sealed := ""
	if next != nil {
		if sealed, err = s.seal.Seal(purpose(k), next); err != nil {
			return err
		}
	}
	return s.file.Update(func(tx *bbolt.Tx) error {
		grants := tx.Bucket(bucketGrants)
		if was != nil && string(grants.Get(k[:])) != was.sealed {
			return errMoved
		}
		if next == nil {
			return grants.Delete(k[:])
		}
		return grants.Put(k[:], []byte(sealed))
	})
}

// Answer records that an authorization request is answered, and reports whether this
// is the first time. The record may be removed after the end of the request.
func (s *Store) Answer(id string, end, now time.Time) (first bool, err error) {
	err = s.file.Update(func(tx *bbolt.Tx) error {
		answered := tx.Bucket(bucketAnswered)
		if first = answered.Get([]byte(id)) == nil; !first {
			return nil
		}
		c := answered.Cursor()
		for id, text := c.First(); id != nil; id, text = c.Next() {
			if end, err := time.Parse(time.RFC3339, string(text)); err != nil || now.After(end) {
				if err := c.Delete(); err != nil {
					return err
				}
			}
		}
		return answered.Put([]byte(id), []byte(end.UTC().Add(time.Second).Format(time.RFC3339)))
	})
	return first && err == nil, err
}
