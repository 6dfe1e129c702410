package approval

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/policy-service/policy-service/schemas/authzen"
)

// HistoryDays is how many days the counts of earlier decisions cover.
const HistoryDays = 30

// An Earlier counts the decisions of the last [HistoryDays] days on items with the subject, action and
// resource of an item.
type Earlier struct {
	Approved int `json:"approved"`
	Denied   int `json:"denied"`
}

// Earlier returns the counts for each item of a request. The item itself counts when it is decided.
func (s *Service) Earlier(ctx context.Context, r *Request) ([]Earlier, error) {
	counts := make([]Earlier, len(r.Items))
	err := s.view(ctx, func(tx txn) error {
		today := dayOf(s.now())
		for i := range r.Items {
			key := historyKey(r, &r.Items[i])
			for day := today - HistoryDays + 1; day <= today; day++ {
				one := readEarlier(tx.Bucket(bucketHistory).Get(append(dayKey(day), key...)))
				counts[i].Approved += one.Approved
				counts[i].Denied += one.Denied
			}
		}
		return nil
	})
	return counts, err
}

// dayOf returns the number of a day since 1970, in UTC.
func dayOf(at time.Time) int64 { return at.Unix() / int64((24 * time.Hour).Seconds()) }

func dayKey(day int64) []byte { return binary.BigEndian.AppendUint32(nil, uint32(day)) }

// historyKey identifies a subject, an action and a resource of a tenant.
func historyKey(r *Request, i *Item) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q", r.Tenant, r.Subject.Type, r.Subject.ID, i.Action.Name, i.Resource.Type, i.Resource.ID))
	return sum[:16]
}

func readEarlier(value []byte) Earlier {
	if len(value) != 8 {
		return Earlier{}
	}
	return Earlier{int(binary.BigEndian.Uint32(value)), int(binary.BigEndian.Uint32(value[4:]))}
}

// countDecided counts the items that an event has decided.
func (t txn) countDecided(before, after *Request, now time.Time) error {
	history := t.Bucket(bucketHistory)
	for i := range after.Items {
		item := &after.Items[i]
		if before.Items[i].Status != authzen.TaskPending || item.Status != authzen.TaskApproved && item.Status != authzen.TaskDenied {
			continue
		}
		key := append(dayKey(dayOf(now)), historyKey(after, item)...)
		count := readEarlier(history.Get(key))
		if item.Status == authzen.TaskApproved {
			count.Approved++
		} else {
			count.Denied++
		}
		value := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(count.Approved)), uint32(count.Denied))
		if err := history.Put(key, value); err != nil {
			return err
		}
	}
	return nil
}

// forgetHistory deletes counts that are too old to be shown.
func (t txn) forgetHistory(now time.Time) error {
	c := t.Bucket(bucketHistory).Cursor()
	oldest := dayOf(now) - HistoryDays
	for key, _ := c.First(); key != nil && int64(binary.BigEndian.Uint32(key)) <= oldest; key, _ = c.Next() {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}
