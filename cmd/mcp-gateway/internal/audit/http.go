package audit

import (
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/policy-service/policy-service/evaluation/decisionlog"
	"github.com/policy-service/policy-service/schemas/authzen"
)

// defaultLimit is how many entries a query gets that asks for no number.
const defaultLimit = 100

// countedEntries is how many of the last entries a query counts at least.
const countedEntries = 1 << 16

// Routes adds the operations of the admin API that read a log, so that the
// commands of policy-service log work on a trail whose gateway runs. The requests
// and answers are those of docs/reference/http.md.
func (t *Trail) Routes(routes *http.ServeMux) {
	routes.HandleFunc("GET /admin/v1/log/export", answer(t.export))
	routes.HandleFunc("GET /admin/v1/log/query", answer(t.query))
	routes.HandleFunc("GET /admin/v1/log/checkpoint", answer(t.checkpoint))
	routes.HandleFunc("GET /admin/v1/log/proof", answer(t.prove))
}

// A badRequest says what is wrong with a query: a phrase that follows "the
// request".
type badRequest struct{ error }

// answer serves an operation, with its error as JSON.
func answer(operation func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := operation(w, r)
		if err == nil {
			return
		}
		status, text := http.StatusInternalServerError, err.Error()
		if bad, is := err.(badRequest); is {
			status, text = http.StatusBadRequest, "the request "+bad.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.MarshalWrite(w, authzen.NewErrorResponse(authzen.Error{Status: status, Message: text}))
	}
}

// export answers with the entries that the query selects: one a line, or as a
// bundle that can be verified.
func (t *Trail) export(w http.ResponseWriter, r *http.Request) error {
	f, err := decisionlog.ParseQuery(r.URL.Query(), "format")
	if err != nil {
		return badRequest{err}
	}
	switch format := r.URL.Query().Get("format"); format {
	case "", decisionlog.FormatJSONL:
		return t.lines(w, r, f)
	case decisionlog.FormatBundle:
		w.Header().Set("Content-Type", "application/zip")
		_, err := t.log.WriteBundle(r.Context(), w, f)
		return err
	default:
		return badRequest{fmt.Errorf("has a format that is neither jsonl nor bundle: %q", format)}
	}
}

// query answers with the last entries that the query selects.
func (t *Trail) query(w http.ResponseWriter, r *http.Request) error {
	f, err := decisionlog.ParseQuery(r.URL.Query(), "limit")
	if err != nil {
		return badRequest{err}
	}
	limit, err := decisionlog.ParseIndex(r.URL.Query(), "limit", defaultLimit)
	if err != nil {
		return badRequest{err}
	}
	if limit > 0 {
		last, err := t.log.Last(r.Context(), f, int(min(limit, math.MaxInt32)), countedEntries)
		if err != nil {
			return err
		}
		f = last.Filter
		w.Header().Set("X-Total-Count", last.Total())
	}
	return t.lines(w, r, f)
}

// lines answers with the entries that f selects, one a line.
func (t *Trail) lines(w http.ResponseWriter, r *http.Request, f decisionlog.Filter) error {
	w.Header().Set("Content-Type", "application/jsonl")
	_, err := t.log.ExportSelected(r.Context(), w, f)
	return err
}

// checkpoint signs the head of the trail.
func (t *Trail) checkpoint(w http.ResponseWriter, _ *http.Request) error {
	checkpoint, err := t.log.Checkpoint()
	if err != nil {
		return err
	}
	return json.MarshalWrite(w, checkpoint)
}

// prove answers with a proof that the trail has an entry, or continues an earlier
// checkpoint.
func (t *Trail) prove(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := decisionlog.CheckParameters(q, "index", "earlier"); err != nil {
		return badRequest{err}
	}
	var proof *decisionlog.Proof
	var err error
	if earlier := q.Get("earlier"); earlier != "" {
		proof, err = t.log.ProveSince([]byte(earlier))
	} else {
		var index int64
		if index, err = decisionlog.ParseIndex(q, "index", math.MaxInt64); err != nil || index >= t.log.Head().Size {
			return badRequest{errors.New("has no index of an entry of the trail, and no earlier checkpoint")}
		}
		proof, err = t.log.ProveEntry(r.Context(), index)
	}
	if err != nil {
		return badRequest{err}
	}
	return json.MarshalWrite(w, proof)
}
