// Package recordfile has what the bbolt files of records have in common: how one is opened, and how
// its index is read page by page.
//
// An index entry has a prefix, such as a tenant and a state, and then a place: a position of a fixed
// size that sorts the list, and the id of the record.
package recordfile

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Open opens a file exclusively. setup runs before the result is returned, for example to create the
// missing buckets.
func Open(path string, setup func(*bolt.DB) error) (*bolt.DB, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	if err := setup(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// CreateBuckets creates missing buckets.
func CreateBuckets(tx *bolt.Tx, names ...[]byte) error {
	for _, name := range names {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// ErrPage means that a token is not one of a position in a list.
var ErrPage = errors.New("the token is not one of a page")

// An Index lists records by place.
type Index struct {
	DB       *bolt.DB
	Bucket   []byte
	Position int // size in bytes of a position
}

// A Place is a record in a list.
type Place struct {
	ID    string
	Token string // of the place; a list can begin after it
}

// batch is the number of places that one transaction reads.
const batch = 100

// List yields the places of all prefixes in order, those after a token or, if it is empty, all. No
// transaction is open while it yields, so it delays no writer. The error is ErrPage if the token is not
// one of a place.
func (x Index) List(ctx context.Context, prefixes [][]byte, token string) iter.Seq2[Place, error] {
	return func(yield func(Place, error) bool) {
		after, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(after) > 0 && len(after) <= x.Position {
			yield(Place{}, ErrPage)
			return
		}
		for {
			places, err := x.next(ctx, prefixes, after)
			if err != nil {
				yield(Place{}, err)
				return
			}
			for _, place := range places {
				if !yield(Place{string(place[x.Position:]), base64.RawURLEncoding.EncodeToString(place)}, nil) {
					return
				}
			}
			if len(places) < batch {
				return
			}
			after = places[len(places)-1]
		}
	}
}

// next returns at most batch places after one of them.
func (x Index) next(ctx context.Context, prefixes [][]byte, after []byte) (places [][]byte, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	err = x.DB.View(func(tx *bolt.Tx) error {
		for _, prefix := range prefixes {
			places = append(places, x.below(tx, prefix, after)...)
		}
		return nil
	})
	slices.SortFunc(places, bytes.Compare)
	places = slices.CompactFunc(places, bytes.Equal) // a prefix may be there twice
	return places[:min(len(places), batch)], err
}

// below returns at most batch places of one prefix after a place.
func (x Index) below(tx *bolt.Tx, prefix, after []byte) (places [][]byte) {
	c := tx.Bucket(x.Bucket).Cursor()
	key, _ := c.Seek(slices.Concat(prefix, after))
	for ; bytes.HasPrefix(key, prefix) && len(places) < batch; key, _ = c.Next() {
		if place := key[len(prefix):]; !bytes.Equal(place, after) {
			places = append(places, slices.Clone(place))
		}
	}
	return places
}
