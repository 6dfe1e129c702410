package outbox_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/obligations/outbox"
)

// A log keeps the ids of records. It may fail before or after it has kept one.
type log struct {
	ids           []string
	before, after error
}

func (l *log) record(_ context.Context, r outbox.Record) error {
	if l.before != nil {
		return l.before
	}
	l.ids = append(l.ids, r.ID)
	return l.after
}

func (l *log) recorded(_ context.Context, id string) (bool, error) {
	return slices.Contains(l.ids, id), nil
}

func openDB(t *testing.T) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "test.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(outbox.Bucket)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

var record = outbox.Record{Kind: "test", Time: time.Unix(0, 0).UTC()}.WithBody(map[string]int{"b": 1, "a": 2})

func add(tx *bolt.Tx) error { return outbox.Append(tx, record) }

// left returns the number of records in the outbox.
func left(t *testing.T, db *bolt.DB) (n int) {
	t.Helper()
	err := db.View(func(tx *bolt.Tx) error {
		for r, err := range outbox.Records(tx) {
			if err != nil || r.ID != record.ID || string(r.Body) != `{"a":2,"b":1}` {
				t.Errorf("%+v, %v", r, err)
			}
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// However the log fails, the record is in it once before anybody reads, also after a restart.
func TestARecordIsInTheLogOnce(t *testing.T) {
	broken := errors.New("the disk is full")
	for _, test := range []struct {
		name          string
		before, after error
		restart       bool
	}{
		{"the log works", nil, nil, false},
		{"it fails before", broken, nil, false},
		{"it fails after", nil, broken, false},
		{"it fails before, and the process ends", broken, nil, true},
		{"it fails after, and the process ends", nil, broken, true},
	} {
		db, l := openDB(t), &log{before: test.before, after: test.after}
		logged := 0
		config := outbox.Config{Record: l.record, Recorded: l.recorded, Logged: func() { logged++ }}
		o := outbox.New(db, config)
		if err := o.Settle(t.Context()); err != nil || logged != 1 {
			t.Errorf("%s: at the start: %v, %d", test.name, err, logged)
		}
		fails := errors.Join(test.before, test.after) != nil
		changed := o.Changed()
		if err := o.Transact(t.Context(), add); errors.Is(err, broken) != fails {
			t.Errorf("%s: %v", test.name, err)
		}
		if err := o.Settle(t.Context()); test.before != nil && !errors.Is(err, broken) {
			t.Errorf("%s: it is settled: %v", test.name, err)
		}
		if err := o.View(t.Context(), func(*bolt.Tx) error { return nil }); test.before != nil && !errors.Is(err, broken) {
			t.Errorf("%s: it is read: %v", test.name, err)
		}
		l.before, l.after = nil, nil
		if test.restart {
			o = outbox.New(db, config)
		}
		if err := o.Settle(t.Context()); err != nil || left(t, db) != 0 {
			t.Errorf("%s: %d are left: %v", test.name, left(t, db), err)
		}
		if diff := cmp.Diff([]string{record.ID}, l.ids); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", test.name, diff)
		}
		select {
		case <-changed:
		default:
			if !test.restart {
				t.Errorf("%s: nobody is woken", test.name)
			}
		}
	}
}

// A transaction that fails leaves nothing, and the outbox is settled without the log.
func TestATransactionThatFails(t *testing.T) {
	db, l := openDB(t), &log{}
	o := outbox.New(db, outbox.Config{Record: l.record})
	refused := errors.New("refused")
	err := o.Transact(t.Context(), func(tx *bolt.Tx) error { return errors.Join(add(tx), refused) })
	if !errors.Is(err, refused) || left(t, db) != 0 || len(l.ids) != 0 {
		t.Errorf("%v, %d are left, %d recorded", err, left(t, db), len(l.ids))
	}
	l.before = errors.New("the disk is full")
	if err := o.Settle(t.Context()); err != nil {
		t.Error(err)
	}
}
