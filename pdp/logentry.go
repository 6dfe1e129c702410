package pdp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation"
	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/evaluation/policytest"
	"github.com/policy-service/policy-service/evaluation/replay"
	"github.com/policy-service/policy-service/evaluation/snapshot"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// entriesHandler serves single entries of the log. To callers without access to its tenant, an entry does
// not exist.
type entriesHandler struct {
	limits *limiter
	log    *decisionlog.Log
	engine *evaluation.Engine

	mu       sync.Mutex // held while policies compile
	compiled *snapshot.Snapshots
}

// find returns the entry that the path names by Decision-ID or by index, and the id of the decision.
func (h *entriesHandler) find(c echo.Context) (record *decisionlog.Record, id string, err error) {
	ctx, id := c.Request().Context(), c.Param(paramID)
	record, err = h.log.Find(ctx, id)
	if who := callerFrom(ctx); who.Tenants != nil && (record == nil || !slices.Contains(who.Tenants, record.Tenant)) {
		if err == nil || errors.Is(err, decisionlog.ErrPruned) {
			err = decisionlog.ErrNoEntry
		}
		return nil, "", err
	}
	if err == nil && strconv.FormatInt(record.Index, 10) == id {
		id = record.Entry.ID
	}
	return record, id, err
}

// show answers with the line of the entry, byte for byte, without a line feed.
func (h *entriesHandler) show(c echo.Context) error {
	record, _, err := h.find(c)
	if err != nil {
		return err
	}
	return h.limits.stream(c, func(to io.Writer) error {
		line, err := h.log.Line(c.Request().Context(), record.Index)
		if err != nil {
			return err
		}
		header := c.Response().Header()
		header[echo.HeaderCacheControl] = noStore
		header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		_, err = to.Write(line)
		return err
	})
}

// evidence answers with a bundle about the entry that can be verified offline. A caller of some tenants gets
// the entries and policies of the entry's tenant, as every caller does.
func (h *entriesHandler) evidence(c echo.Context) error {
	record, _, err := h.find(c)
	if err != nil {
		return err
	}
	return h.limits.stream(c, func(to io.Writer) error {
		header := c.Response().Header()
		header[echo.HeaderCacheControl] = noStore
		header.Set(echo.HeaderContentType, "application/zip")
		header.Set(echo.HeaderContentDisposition, fmt.Sprintf("attachment; filename=\"evidence-%d.zip\"", record.Index))
		return h.log.WriteEvidence(c.Request().Context(), to, record.Index)
	})
}

// test answers with a test file that expects the decision, as "policy-service test --from-log" does for
// an entry.
func (h *entriesHandler) test(c echo.Context) error {
	record, id, err := h.find(c)
	if err != nil {
		return err
	}
	logged, err := replay.DecisionOf(&record.Entry, id)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", policytest.ErrNoTest, err)
	case logged.Request == nil:
		return fmt.Errorf("%w: its request is not valid", policytest.ErrNoTest)
	case len(logged.Masked) > 0:
		return fmt.Errorf("%w: the log hides the values at %s", policytest.ErrNoTest, strings.Join(logged.Masked, ", "))
	}
	text, err := policytest.FromDecisions([]replay.Logged{*logged})
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentDisposition, fmt.Sprintf("attachment; filename=\"decision-%d.yaml\"", record.Index))
	return sendBody(c, http.StatusOK, "application/yaml", text)
}

// explain explains the decision, as "log explain --json" does.
func (h *entriesHandler) explain(c echo.Context) error {
	record, id, err := h.find(c)
	if err != nil {
		return err
	}
	var answer bytes.Buffer
	status := http.StatusOK
	return h.limits.stream(c, func(to io.Writer) error {
		_, explanation, err := replay.ExplainID(&record.Entry, id, h.policies(record.Tenant))
		if err == nil {
			err = encode(&answer, explanation)
		} else if why := unexplained(err); why != nil {
			status, err = http.StatusUnprocessableEntity, encode(&answer, why)
		}
		if err != nil {
			return err
		}
		return sendBody(c, status, echo.MIMEApplicationJSON, answer.Bytes())
	})
}

// policies returns the policies of a revision: those in force, those of the last explanation, or those of
// the archive.
func (h *entriesHandler) policies(tenant string) replay.Policies {
	return func(revision string) (*snapshot.Snapshots, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, all := range []*snapshot.Snapshots{h.compiled, h.engine.Snapshots()} {
			if all == nil {
				continue
			}
			if s, err := all.For(tenant); err == nil && s.Revision() == revision {
				return all, nil
			}
		}
		all, err := replay.Archived(h.log.ReadArchive)(revision)
		if err == nil {
			h.compiled = all
		}
		return all, err
	}
}

// An Unexplained is the answer for a decision that cannot be explained.
type Unexplained struct {
	authzen.ErrorResponse
	Reason    string            `json:"reason"` // one of unexplainedReasons
	Masked    *replay.Hidden    `json:"masked,omitempty"`
	Different *replay.Different `json:"different,omitempty"`
}

// unexplainedReasons lists why a decision cannot be explained.
var unexplainedReasons = []struct {
	err    error
	reason string
}{
	{replay.ErrMasked, "masked"},
	{replay.ErrOtherwise, "otherwise"},
	{replay.ErrNotArchived, "not_archived"},
	{replay.ErrNotCompiled, "not_compiled"},
	{replay.ErrNoDecision, "no_decision"},
	{replay.ErrNoItem, "no_item"},
	{replay.ErrUnevaluated, "unevaluated"},
}

// unexplained returns the answer for an error of package replay, or nil for another error.
func unexplained(err error) *Unexplained {
	for _, r := range unexplainedReasons {
		if !errors.Is(err, r.err) {
			continue
		}
		out := &Unexplained{ErrorResponse: authzen.NewErrorResponse(authzen.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}), Reason: r.reason}
		errors.As(err, &out.Masked)
		errors.As(err, &out.Different)
		return out
	}
	return nil
}
