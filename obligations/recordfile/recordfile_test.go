package recordfile_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/recordfile"
)

var bucket = []byte("listed")

// indexOf returns an index with n records in each of the lists a and b, in turns.
func indexOf(t *testing.T, n int) (x recordfile.Index, all []string) {
	t.Helper()
	db, err := recordfile.Open(filepath.Join(t.TempDir(), "records.db"), func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error { return recordfile.CreateBuckets(tx, bucket) })
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	err = db.Update(func(tx *bolt.Tx) error {
		for i := range 2 * n {
			id := fmt.Sprintf("%s%d", []string{"a", "b"}[i%2], i)
			all = append(all, id)
			key := append(binary.BigEndian.AppendUint32([]byte{id[0], 0}, uint32(i)), id...)
			if err := tx.Bucket(bucket).Put(key, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return recordfile.Index{DB: db, Bucket: bucket, Position: 4}, all
}

func listed(t *testing.T, x recordfile.Index, token string, prefixes ...string) (places []recordfile.Place) {
	t.Helper()
	var of [][]byte
	for _, p := range prefixes {
		of = append(of, []byte(p+"\x00"))
	}
	for place, err := range x.List(t.Context(), of, token) {
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, place)
	}
	return places
}

func ids(places []recordfile.Place) (ids []string) {
	for _, p := range places {
		ids = append(ids, p.ID)
	}
	return ids
}

// Lists are merged by position, over several transactions, and continue after any token.
func TestListMergesPrefixes(t *testing.T) {
	x, all := indexOf(t, 250)
	places := listed(t, x, "", "a", "b", "a")
	if got := ids(places); !slices.Equal(got, all) {
		t.Fatalf("%d records: %v", len(got), got)
	}
	for n, place := range places {
		if n%50 == 0 {
			if got := ids(listed(t, x, place.Token, "a", "b")); !slices.Equal(got, all[n+1:]) {
				t.Fatalf("after %s: %v", place.ID, got)
			}
		}
	}
	if got := listed(t, x, "", "a"); len(got) != 250 {
		t.Errorf("a has %d", len(got))
	}
}

// A token that is none of a place is refused, and a list ends with its context.
func TestListRefuses(t *testing.T) {
	x, _ := indexOf(t, 1)
	for _, token := range []string{"!", "YWJj", "YWJjZA"} {
		for _, err := range x.List(t.Context(), [][]byte{[]byte("a\x00")}, token) {
			if !errors.Is(err, recordfile.ErrPage) {
				t.Errorf("%s: %v", token, err)
			}
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.ErrUnsupported)
	for _, err := range x.List(ctx, [][]byte{[]byte("a\x00")}, "") {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
}

// A file whose set-up fails is closed again.
func TestOpenClosesAfterAFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	if _, err := recordfile.Open(path, func(*bolt.DB) error { return errors.ErrUnsupported }); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	db, err := recordfile.Open(path, func(*bolt.DB) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
