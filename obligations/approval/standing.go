package approval

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/policy-service/policy-service/obligations/recordfile"
)

// A Standing is an approval that can still be used.
type Standing struct {
	*Request
	Item     int    // index of its item
	UsesLeft int    // 0 if uses are not counted
	Token    string // of its position in the list
}

// untilSize is the length of a position in the list of standing approvals: its end, in seconds.
const untilSize = 8

// Standing yields the approvals of tenants that can still be used, those that end first at first. The
// list begins after a token; nil tenants means all. It delays no writer.
func (s *Service) Standing(ctx context.Context, tenants []string, token string) iter.Seq2[Standing, error] {
	return func(yield func(Standing, error) bool) {
		if tenants == nil {
			tenants = []string{everyTenant}
		}
		var prefixes [][]byte
		for _, tenant := range tenants {
			prefixes = append(prefixes, append([]byte(tenant), 0))
		}
		if token == "" { // leave out those whose time has passed
			token = base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(s.now().Unix())), 0))
		}
		index := recordfile.Index{DB: s.db, Bucket: bucketStanding, Position: untilSize}
		for place, err := range index.List(ctx, prefixes, token) {
			var one Standing
			if err == nil {
				one, err = s.standing(ctx, place)
			}
			if errors.Is(err, ErrUnknownApproval) {
				continue // it has ended
			}
			if !yield(one, err) || err != nil {
				return
			}
		}
	}
}

// standing returns the approval at a place of the list, or ErrUnknownApproval if it cannot be used any
// more.
func (s *Service) standing(ctx context.Context, place recordfile.Place) (Standing, error) {
	r, i, err := s.approved(ctx, place.ID)
	if err != nil {
		return Standing{}, err
	}
	item := &r.Items[i]
	if !item.usable(s.now()) {
		return Standing{}, ErrUnknownApproval
	}
	left, _ := item.Approval.left(item.Terms.Uses, Use{})
	return Standing{r, i, left, place.Token}, nil
}

// standingEntries returns the index entries of the approvals of a request that have not ended otherwise
// than by time.
func (r *Request) standingEntries() (entries []indexEntry) {
	for i := range r.Items {
		a := r.Items[i].Approval
		if a == nil || !r.Items[i].usable(time.Time{}) {
			continue
		}
		place := append(binary.BigEndian.AppendUint64(nil, uint64(a.Until.Unix())), a.ID...)
		for _, tenant := range []string{r.Tenant, everyTenant} {
			entries = append(entries, indexEntry{bucketStanding, append(append([]byte(tenant), 0), place...), nil})
		}
	}
	return entries
}
