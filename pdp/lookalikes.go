package pdp

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/policy-service/policy-service/obligations/approval"
	"github.com/policy-service/policy-service/schemas/authzen"
	"github.com/policy-service/policy-service/schemas/yamldoc"
)

// A LookAlike is an id of a request that is not known, and differs from a known one of its type by one letter.
type LookAlike struct {
	Type  string `json:"type"`
	ID    string `json:"id"`
	Known string `json:"known"`
}

// Bounds of what look-alikes are looked for among: requests and approvals, and items of the request.
const (
	mostApproved   = 100
	mostLookAlikes = 20
)

// knownIDs are ids by type.
type knownIDs map[string][]string

func (k knownIDs) add(entityType, id string) { k[entityType] = append(k[entityType], id) }

// typeActor is the type of actors, who have an id alone.
const typeActor = "actor"

// addRequest adds the subject, the actors and the first resources of a request.
func (k knownIDs) addRequest(r *approval.Request) {
	k.add(r.Subject.Type, r.Subject.ID)
	for _, actor := range r.Actors {
		k.add(typeActor, actor.ID)
	}
	for _, item := range r.Items[:min(len(r.Items), mostLookAlikes)] {
		k.add(item.Resource.Type, item.Resource.ID)
	}
}

// lookAlikes returns the ids of a request that look like others of the same tenant: of its entities, of its newest
// approved requests, and of its approvals that can still be used.
func (d *approvalsHandler) lookAlikes(ctx context.Context, r *approval.Request) (all []LookAlike, err error) {
	known := knownIDs(d.ids(r.Tenant))
	if known == nil {
		known = make(knownIDs)
	}
	if err := d.addApproved(ctx, r, known); err != nil {
		return nil, err
	}
	asked := make(knownIDs)
	asked.addRequest(r)
	for entityType, ids := range asked {
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if like := lookAlike(id, known[entityType]); like != "" {
				all = append(all, LookAlike{entityType, id, like})
			}
		}
	}
	slices.SortFunc(all, func(a, b LookAlike) int { return strings.Compare(a.Type+"\x00"+a.ID, b.Type+"\x00"+b.ID) })
	return all, nil
}

// addApproved adds the ids of the newest other approved requests of the tenant of a request, and of its approvals that
// can still be used.
func (d *approvalsHandler) addApproved(ctx context.Context, of *approval.Request, known knownIDs) error {
	tenants, left := []string{of.Tenant}, mostApproved
	for r, err := range d.approvals.List(ctx, approval.Query{Tenants: tenants, Status: authzen.TaskApproved}) {
		if err != nil {
			return err
		}
		if r.ID != of.ID {
			known.addRequest(r.Request)
		}
		if left--; left == 0 {
			break
		}
	}
	left = mostApproved
	for one, err := range d.approvals.Standing(ctx, tenants, "") {
		if err != nil {
			return err
		}
		if one.ID != of.ID {
			known.addRequest(one.Request)
		}
		if left--; left == 0 {
			break
		}
	}
	return nil
}

// fewestLetters is the number of letters from which a difference of one is easily overlooked.
const fewestLetters = 4

// lookAlike returns the known id from which an unknown one differs by one letter, or in capitals alone, or "". Ids that
// differ in digits alone are numbered, so they do not count.
func lookAlike(id string, known []string) string {
	if slices.Contains(known, id) || countLetters(id) < fewestLetters {
		return ""
	}
	unnumbered := withoutDigits(id)
	near := func(other string) bool { return isNear(id, other) && withoutDigits(other) != unnumbered }
	var some []string
	for _, other := range known {
		if near(other) {
			some = append(some, other)
		}
	}
	return yamldoc.Nearest(id, some, 1)
}

// isNear is a cheap test that all ids with one difference pass: before it or after it, half of them are equal.
func isNear(id, other string) bool {
	half := len(id) / 2
	if len(other) < half {
		return false
	}
	return strings.EqualFold(id[:half], other[:half]) || strings.EqualFold(id[len(id)-half:], other[len(other)-half:])
}

func countLetters(text string) (n int) {
	for _, r := range text {
		if unicode.IsLetter(r) {
			n++
		}
	}
	return n
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}
