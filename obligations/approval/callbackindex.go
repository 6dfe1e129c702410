package approval

import (
	"bytes"
	"crypto/sha256"
	"time"
)

// A key of the buckets notices and messages begins with a digest of the destination. So what is due to
// one destination is found without reading what is due to others.
const destinationBytes = 16

func destinationPrefix(to string) []byte {
	sum := sha256.Sum256([]byte(to))
	return sum[:destinationBytes]
}

// callbackEntry returns the index entry of a callback.
func callbackEntry(r *Request) indexEntry {
	to := destination(r.Callback.Endpoint)
	return indexEntry{bucketNotices, append(destinationPrefix(to), dueKey(r.Notice.Due, r.ID)...), []byte(to)}
}

// isDue reports whether the entry of a key is due.
func isDue(key []byte, now time.Time) bool {
	return bytes.Compare(key[destinationBytes:], dueKey(now.Add(time.Second), "")) < 0
}

// destinations returns the destinations with an entry that is due.
func (t txn) destinations(bucket []byte, now time.Time) (all []string) {
	c := t.Bucket(bucket).Cursor()
	key, to := c.First()
	for key != nil {
		if isDue(key, now) { // the first key is the earliest of its destination
			all = append(all, string(to))
		}
		last := append(bytes.Clone(key[:destinationBytes]), 0xFF) // after any time
		key, to = c.Seek(last)
	}
	return all
}

// dueCallbacks returns at most most requests with a callback to one destination that is due, the
// earliest first.
func (t txn) dueCallbacks(to string, now time.Time, most int) (due []*Request, err error) {
	prefix := destinationPrefix(to)
	c := t.Bucket(bucketNotices).Cursor()
	for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix) && isDue(key, now) && len(due) < most; key, _ = c.Next() {
		r, err := t.request(string(key[destinationBytes+8:]))
		if err != nil {
			return nil, err
		}
		due = append(due, r)
	}
	return due, nil
}
