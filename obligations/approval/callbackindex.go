package approval

import (
	"bytes"
	"crypto/sha256"
	"time"
)

// A key of the bucket notices begins with a digest of the destination, so that
// what is due to one is found without looking at what is due to the others.
const destinationBytes = 16

func destinationPrefix(to string) []byte {
	sum := sha256.Sum256([]byte(to))
	return sum[:destinationBytes]
}

// callbackEntry is the index entry of a notice.
func callbackEntry(r *Request) indexEntry {
	to := destination(r.Callback.Endpoint)
	return indexEntry{bucketNotices, append(destinationPrefix(to), dueKey(r.Notice.Due, r.ID)...), []byte(to)}
}

// isDue reports whether the notice of a key is.
func isDue(key []byte, now time.Time) bool {
	return bytes.Compare(key[destinationBytes:], dueKey(now.Add(time.Second), "")) < 0
}

// destinations lists where notices are due.
func (t txn) destinations(now time.Time) (all []string) {
	c := t.Bucket(bucketNotices).Cursor()
	key, to := c.First()
	for key != nil {
		if isDue(key, now) { // it is the earliest of its destination
			all = append(all, string(to))
		}
		last := append(bytes.Clone(key[:destinationBytes]), 0xFF) // behind any time
		key, to = c.Seek(last)
	}
	return all
}

// dueCallbacks lists the requests of which one destination is to learn now, the
// earliest first, at most so many.
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
