package pdp

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/pdp/callers"
	"github.com/policy-service/policy-service/pdp/console"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// logFilter reads the query of a request for entries, which may have a parameter
// more, for the form of the answer. It selects no entries but those of the caller's
// tenants.
func logFilter(c echo.Context, forms ...string) (decisionlog.Filter, error) {
	f, err := decisionlog.ParseQuery(c.QueryParams(), forms...)
	if err != nil {
		return f, authzen.Invalid("", "%v", err)
	}
	f.Tenants = callerFrom(c.Request().Context()).Tenants // whatever else is asked for
	return f, nil
}

// exportTypes are the media types of exports.
var exportTypes = map[string]string{
	decisionlog.FormatJSONL: "application/jsonl", decisionlog.FormatOCSF: "application/jsonl",
	decisionlog.FormatCSV: "text/csv; charset=utf-8; header=present", decisionlog.FormatBundle: "application/zip",
}

// exportNames are the names of files for exports.
var exportNames = map[string]string{
	decisionlog.FormatJSONL: "entries.jsonl", decisionlog.FormatOCSF: "entries.ocsf.jsonl", decisionlog.FormatCSV: "entries.csv", decisionlog.FormatBundle: "entries.zip",
}

// serveExport streams the entries that the query selects in one of the formats. record is called before an
// export by a person who is signed in to the console.
func serveExport(limits *limiter, log *decisionlog.Log, record func(context.Context, console.Identity, console.Act) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		f, err := logFilter(c, "format")
		if err != nil {
			return err
		}
		format := cmp.Or(c.QueryParam("format"), decisionlog.FormatJSONL)
		if exportTypes[format] == "" {
			return authzen.Invalid("", "has a format that is none of jsonl, csv, ocsf and bundle: %q", format)
		}
		if who, is := console.IdentityFrom(c.Request().Context()); is {
			act := console.Act{Action: "export", By: who.Principal(), Format: format, Query: f.Query().Encode()}
			if err := record(c.Request().Context(), who, act); err != nil {
				return err
			}
		}
		return limits.stream(c, func(to io.Writer) error {
			header := c.Response().Header()
			header.Set(echo.HeaderContentType, exportTypes[format])
			header.Set(echo.HeaderContentDisposition, fmt.Sprintf("attachment; filename=%q", exportNames[format]))
			return export(c.Request().Context(), to, log, f, format)
		})
	}
}

// export writes the entries that f selects.
func export(ctx context.Context, to io.Writer, log *decisionlog.Log, f decisionlog.Filter, format string) error {
	if format == decisionlog.FormatBundle {
		_, err := log.WriteBundle(ctx, to, f)
		return err
	}
	encoder, err := decisionlog.NewEncoder(to, format)
	if err != nil {
		return err
	}
	for line, err := range log.Select(ctx, f) {
		if err == nil {
			err = encoder.Encode(line)
		}
		if err != nil {
			return err
		}
	}
	return encoder.Flush()
}

// someEntries is the default number of entries in the answer to a query.
const someEntries = 100

// countEntries is the number of last entries among which a query counts its matches.
const countEntries = 1 << 16

// HeaderTotal has the number of entries that a query selects; the answer has the last ?limit= of
// them. A plus sign after it means that older entries were not counted.
const HeaderTotal = "X-Total-Count"

// Headers of the answer to a query.
const (
	// HeaderLookedAt has the range FROM-UNTIL of indexes, without UNTIL, from which the answer has every
	// selected entry.
	HeaderLookedAt = "Log-Looked-At"
	// HeaderMore is "true" if entries before that range may be selected. The query with until=FROM continues
	// there.
	HeaderMore = "Log-More"
)

const (
	// maxLook is the maximum number of entries that a query with ?look= reads.
	maxLook = 100_000
	// lookTime is how long such a query reads before it answers with the results so far.
	lookTime = 2 * time.Second
)

// serveQuery streams the last ?limit= entries that the query selects, one JSON object on each line.
// A limit of 0 means all entries. With ?look=, the query reads no more entries than that from the end.
func serveQuery(limits *limiter, log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error {
		f, err := logFilter(c, "limit", "look")
		if err != nil {
			return err
		}
		limit, err := indexParam(c, "limit", someEntries)
		if err != nil {
			return err
		}
		look, err := indexParam(c, "look", 0)
		if err == nil && (look > maxLook || look > 0 && limit == 0) {
			err = authzen.Invalid("", "has a look of %d: it can be %d at most, and needs a limit", look, maxLook)
		}
		if err != nil {
			return err
		}
		return limits.stream(c, func(to io.Writer) error {
			if limit > 0 {
				if f, err = latest(c, log, f, int(min(limit, math.MaxInt32)), look); err != nil {
					return err
				}
			}
			return writeLines(c, to, log, f)
		})
	}
}

// latest returns the filter for the last n entries that f selects, and writes the headers that describe
// them. A look of 0 means the whole log.
func latest(c echo.Context, log *decisionlog.Log, f decisionlog.Filter, n int, look int64) (decisionlog.Filter, error) {
	var last decisionlog.Last
	var err error
	if ctx := c.Request().Context(); look > 0 {
		last, err = log.Latest(ctx, f, n, decisionlog.Look{Entries: look, Time: lookTime})
	} else {
		last, err = log.Last(ctx, f, n, countEntries)
	}
	if err != nil {
		return f, err
	}
	header := c.Response().Header()
	header.Set(HeaderTotal, last.Total())
	header.Set(HeaderLookedAt, last.Looked())
	if last.More {
		header.Set(HeaderMore, "true")
	}
	return last.Filter, nil
}

// writeLines writes the lines of the entries that f selects.
func writeLines(c echo.Context, to io.Writer, log *decisionlog.Log, f decisionlog.Filter) error {
	c.Response().Header().Set(echo.HeaderContentType, "application/jsonl")
	_, err := log.ExportSelected(c.Request().Context(), to, f)
	return err
}

// serveCheckpoint signs the head of the log.
func serveCheckpoint(log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error {
		checkpoint, err := log.Checkpoint()
		if err != nil {
			return err
		}
		return writeJSON(c, http.StatusOK, checkpoint)
	}
}

// LogKeys are the public keys of the log.
type LogKeys struct {
	Keys []string `json:"keys"` // the newest last
	// Change is the checkpoint that the last two keys have signed; "" if the key was never changed.
	Change string `json:"change,omitzero"`
}

// serveKeys answers with the public keys of the log.
func serveKeys(log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error {
		var out LogKeys
		var err error
		if out.Keys, err = log.Keys(); err != nil {
			return err
		}
		if out.Change, err = log.LastKeyChange(); err != nil {
			return err
		}
		return writeJSON(c, http.StatusOK, out)
	}
}

// serveRotateKey gives the log a new key. The answer has the checkpoint that both keys signed.
func serveRotateKey(log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := decodeNothing(c); err != nil {
			return err
		}
		change, err := log.RotateKey(c.Request().Context())
		if err != nil {
			return err
		}
		return writeJSON(c, http.StatusOK, change)
	}
}

// serveProof proves that the log has the entry ?index=, or all entries of the checkpoint ?earlier=.
func serveProof(log *decisionlog.Log) echo.HandlerFunc {
	return func(c echo.Context) error {
		who := callerFrom(c.Request().Context())
		if earlier := c.QueryParam("earlier"); earlier != "" {
			if who.Tenants != nil { // the proof is about the entries of all tenants
				return callers.ErrForbidden
			}
			return answerProof(c)(log.ProveSince([]byte(earlier)))
		}
		index, err := indexParam(c, "index", -1)
		if err == nil && (index < 0 || index >= log.Head().Size) {
			index = -1
		}
		if err == nil && index >= 0 && who.Tenants != nil {
			index, err = ownEntry(c.Request().Context(), log, index, who.Tenants)
		}
		if err == nil && index < 0 {
			err = authzen.Invalid("", "has no index of an entry of the log, and no earlier checkpoint")
		}
		if err != nil {
			return err
		}
		return answerProof(c)(log.ProveEntry(c.Request().Context(), index))
	}
}

// ownEntry returns index if the entry belongs to one of the tenants. For any other entry it returns
// -1, as if the entry did not exist.
func ownEntry(ctx context.Context, log *decisionlog.Log, index int64, tenants []string) (int64, error) {
	own, err := log.Newest(ctx, decisionlog.Filter{From: index, Until: index + 1, Tenants: tenants})
	if err != nil || len(own) == 0 {
		return -1, err
	}
	return index, nil
}

// answerProof writes a proof, or the reason why there is none.
func answerProof(c echo.Context) func(*decisionlog.Proof, error) error {
	return func(proof *decisionlog.Proof, err error) error {
		if err != nil {
			return writeJSON(c, http.StatusUnprocessableEntity, authzen.NewErrorResponse(authzen.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}))
		}
		return writeJSON(c, http.StatusOK, proof)
	}
}
