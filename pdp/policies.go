package pdp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/revisions"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// Path parameters of revisions.
const (
	paramRevision = "revision"
	paramOther    = "other"
)

// Names of the revisions in force.
const (
	revisionCurrent = "current"
	revisionShadow  = "shadow"
)

// errNoRevision means that the log's archive lacks a revision, or that the caller may not see it.
var errNoRevision = errors.New("unknown revision: the archive of the log does not have it")

// A PolicyRevision is the answer about a revision of the policies.
type PolicyRevision struct {
	Revision string `json:"revision"`
	*revisions.Contents
}

// A PolicyDifference is the answer about two revisions.
type PolicyDifference struct {
	From string `json:"from"`
	To   string `json:"to"`
	*revisions.Difference
}

// A PolicyHistory is the answer about what was in force when.
type PolicyHistory struct {
	Reloads []evaluation.Reload `json:"reloads"`       // the newest first
	Next    int64               `json:"next,omitzero"` // value of ?until= for earlier ones; absent at the beginning of the log
}

// policiesHandler shows revisions of the policies.
type policiesHandler struct {
	engine *evaluation.Engine
	log    *decisionlog.Log

	mu   sync.Mutex // held while policies of the archive compile, so that one does at a time
	kept []keptRevision
}

// A keptRevision is a revision that was shown lately.
type keptRevision struct {
	revision string
	contents *revisions.Contents
	tenants  []string
}

const maxRevisions = 4

// show answers with the files and policies of a revision.
func (h *policiesHandler) show(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	found, err := h.find(c, c.Param(paramRevision))
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, PolicyRevision{found.revision, found.contents})
}

// compare answers with the differences between two revisions.
func (h *policiesHandler) compare(c echo.Context) error {
	if err := knownQuery(c); err != nil {
		return err
	}
	from, err := h.find(c, c.Param(paramRevision))
	if err != nil {
		return err
	}
	to, err := h.find(c, c.Param(paramOther))
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, PolicyDifference{from.revision, to.revision, revisions.Compare(from.contents, to.contents)})
}

// find returns what the caller may see of a revision: the root, and the folders of its tenants.
func (h *policiesHandler) find(c echo.Context, name string) (keptRevision, error) {
	v := view{callerFrom(c.Request().Context()).Tenants}
	found, err := h.read(name)
	if err != nil || v.tenants == nil {
		return found, err
	}
	if len(found.tenants) > 0 && !slices.ContainsFunc(found.tenants, v.sees) {
		return keptRevision{}, errNoRevision
	}
	found.contents = found.contents.Only(v.file)
	if len(v.tenants) == 1 {
		found.revision = h.ownRevision(name, v.tenants[0], found.revision)
	}
	return found, nil
}

// ownRevision returns the revision of a tenant's own policies, for one in force. That of the whole
// store changes with any tenant.
func (h *policiesHandler) ownRevision(name, tenant, whole string) string {
	if all := h.inForce(name); all != nil {
		if own, err := all.For(tenant); err == nil {
			return own.Revision()
		}
	}
	return whole
}

// inForce returns the store that a name stands for, or nil.
func (h *policiesHandler) inForce(name string) *snapshot.Snapshots {
	switch current, shadow := h.engine.Snapshots(), h.engine.ShadowSnapshots(); {
	case current != nil && (name == revisionCurrent || name == current.Revision()):
		return current
	case shadow != nil && (name == revisionShadow || name == shadow.Revision()):
		return shadow
	}
	return nil
}

// read returns a revision by its name.
func (h *policiesHandler) read(name string) (keptRevision, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.inForce(name)
	if all != nil {
		name = all.Revision()
	}
	for _, kept := range h.kept {
		if kept.revision == name {
			return kept, nil
		}
	}
	if all == nil {
		var err error
		all, err = replay.Archived(h.log.ReadArchive)(name)
		if errors.Is(err, replay.ErrNotArchived) {
			return keptRevision{}, errNoRevision
		}
		if err != nil {
			return keptRevision{}, fmt.Errorf("show revision %s: %w", name, err)
		}
	}
	kept := keptRevision{all.Revision(), revisions.Of(all), all.Tenants()}
	h.kept = append(h.kept[max(0, len(h.kept)-maxRevisions+1):], kept)
	return kept, nil
}

// reloadLook limits the entries that a request for earlier reloads reads.
var reloadLook = decisionlog.Look{Entries: 100_000, Time: 2 * time.Second}

// list answers with what was in force when: the reloads of this process, or those before ?until=.
func (h *policiesHandler) list(c echo.Context) error {
	if err := knownQuery(c, "limit", "until"); err != nil {
		return err
	}
	limit, err := indexParam(c, "limit", someEntries)
	if err == nil && (limit < 1 || limit > maxReloadsListed) {
		err = authzen.Invalid("", "has a limit that is not between 1 and %d", maxReloadsListed)
	}
	if err != nil {
		return err
	}
	until, err := indexParam(c, "until", 0)
	if err != nil {
		return err
	}
	answer := PolicyHistory{Reloads: []evaluation.Reload{}}
	if until == 0 {
		answer.Reloads, answer.Next = h.engine.Reloads(int(limit))
		return writeJSON(c, http.StatusOK, answer)
	}
	logged, next, err := h.engine.LoggedReloads(c.Request().Context(), until, int(limit), reloadLook)
	if err != nil {
		return err
	}
	answer.Reloads, answer.Next = append(answer.Reloads, logged...), next
	return writeJSON(c, http.StatusOK, answer)
}

const maxReloadsListed = 1000
